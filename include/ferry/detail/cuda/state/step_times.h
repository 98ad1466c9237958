// When the blocks of a kernel did each step, while a Trace records: the earliest begin and the latest end.
#pragma once

#include <cstdint>

#include "ferry/detail/base/order.h"

namespace ferry::cuda {

// Blocks do different ones beside each other. In the order of ferry::kKernelSteps.
enum class KernelStep : std::uint8_t { route, send, wait, lay_out, sum };
inline constexpr int kNumKernelSteps = 5;

// Nanoseconds by the device's clock, in device memory. A begin is stored as its complement: so the earliest one is the
// largest, and zeros say that no block has done the step.
struct StepTimes {
  DeviceWord<std::uint64_t> begin[kNumKernelSteps];
  DeviceWord<std::uint64_t> end[kNumKernelSteps];
};

}  // namespace ferry::cuda
