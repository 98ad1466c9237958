// Where a rank of a world of GPUs is.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "cuda/world/device_memory.h"

namespace ferry::cuda {

// All ranks' symmetric memory as this rank's device reaches it, in rank order; null for masked ranks. I16: every rank
// holds the memory of all, whoever allocated it.
using DeviceHeaps = std::vector<std::shared_ptr<std::byte>>;

// A rank's device, and how many ranks of the world share it: each gets its part of the multiprocessors.
struct DevicePlace {
  int device = 0;
  int ranks = 1;
  // Where GPUs are shared by ranks of one process: all of them have the same.
  std::shared_ptr<DeferredFree> deferred_free{};
};

}  // namespace ferry::cuda
