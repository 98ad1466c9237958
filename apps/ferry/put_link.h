// Bytes that go plainly from rank to rank, each rank's in one piece: what an exchange of processes is compared with.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "ferry/process_world.h"

namespace ferry::app {

class PutLink {
 public:
  virtual ~PutLink() = default;
  // Puts so many bytes to each rank, and returns when all that the others put is here. All ranks call it.
  virtual void exchange(std::span<const std::size_t> bytes_to) = 0;
};

}  // namespace ferry::app
