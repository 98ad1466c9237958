// FormatPlan: what differs between the formats that a dispatch may take (DispatchInput::format).
#pragma once

#include <cstddef>
#include <vector>

#include "cuda/exchange/plan/kernel_plan.h"
#include "ferry/detail/layout/heap_map.h"

namespace ferry::cuda {

struct FormatPlan {
  std::size_t message_bytes;
  int alignment;
  std::size_t global_scale_at;  // in a message; 0: tokens have none
  bool uses_input_scale;
  ExchangeKernels kernels;
  KernelPlan kernel_plan;
};

// For all formats of the exchange: chooses and loads the kernels. `device` must be current. Throws
// Error(unsupported) where there is no kernel for a format, and as KernelPlan does.
std::vector<FormatPlan> format_plans(const RankDevice& device, int rank, const Shape& shape,
                                     const ExchangeOptions& options, const HeapMap& map, const Launchers& launchers);

}  // namespace ferry::cuda
