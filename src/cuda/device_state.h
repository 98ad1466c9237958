// What an exchange keeps on its device besides the symmetric memory, and the record through which a kernel tells the host
// that something went wrong.
#pragma once

#include <cstdint>

#include "ferry/error.h"
#include "shared/order.h"

namespace ferry::cuda {

// In host memory that the device can write. `failed` and `bad_ids` are set last.
struct HostRecord {
  WaitRecord wait;
  SystemWord<std::uint32_t> failed;
  SystemWord<std::uint32_t> bad_ids;  // how many
  std::int32_t bad_token;
  std::int32_t bad_k;
  std::int64_t bad_id;
};

// In device memory; zeroed, then the epochs set.
struct DeviceState {
  DeviceWord<Epoch> dispatched;  // the newest round that was sent
  DeviceWord<Epoch> combined;    // the newest round whose buffers this rank has given back
  DeviceWord<std::uint32_t> ticket;
  DeviceWord<std::uint32_t> failed;
  DeviceWord<std::uint64_t> non_finite;
  DeviceWord<std::uint64_t> dropped;
  DeviceWord<std::uint64_t> dispatches;
  DeviceWord<std::uint64_t> combines;
  DeviceWord<std::uint32_t> num_tokens;  // of the open round
};

}  // namespace ferry::cuda
