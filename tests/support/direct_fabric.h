// DirectFabric: cpu::HostFabric in the form in which the worlds of the tests make fabrics.
#pragma once

#include <memory>
#include <utility>

#include "support/fake_fabric.h"

namespace ferry::test {

class DirectFabric : public cpu::HostFabric {
 public:
  static constexpr bool kHasWire = false;
  struct Net {};

  DirectFabric(const std::shared_ptr<Net>&, FabricPlace place)
      : OneByOne(place.rank, std::move(place.heaps), place.abort_words, place.masked) {}
};
static_assert(SerialFabric<DirectFabric>);

}  // namespace ferry::test
