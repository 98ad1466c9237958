// WaitsAdded: adds up how long a part of a call waits for each rank.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/fabric/host_waits.h"

namespace ferry::cpu {

class WaitsAdded {
 public:
  // From now on until this is gone. `to`: nanoseconds, [ranks].
  WaitsAdded(const HostWaits& waits, std::vector<std::uint64_t>& to) : waits_(waits), to_(to) {
    for (std::size_t peer = 0; peer < to_.size(); ++peer) to_[peer] -= waits_.waited_ns(static_cast<int>(peer));
  }
  ~WaitsAdded() {
    for (std::size_t peer = 0; peer < to_.size(); ++peer) to_[peer] += waits_.waited_ns(static_cast<int>(peer));
  }
  WaitsAdded(const WaitsAdded&) = delete;
  WaitsAdded& operator=(const WaitsAdded&) = delete;

 private:
  const HostWaits& waits_;
  std::vector<std::uint64_t>& to_;
};

}  // namespace ferry::cpu
