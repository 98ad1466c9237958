// What exchanges of GPUs can do. Nothing of CUDA is in here: `ferry info` plans by it on machines without a GPU.
#pragma once

#include "ferry/world.h"

namespace ferry::cuda {

struct GpuWorldIs {
  bool staged = false;        // its calls take host memory
  bool remote_ranks = false;  // some GPUs are reached by puts only
  bool release = false;       // memory can be given back and its addresses kept
};

constexpr WorldCapabilities gpu_capabilities(const GpuWorldIs& world) {
  return {.device_memory = !world.staged,
          .remote_ranks = world.remote_ranks,
          .function_hooks = world.staged,
          .compiled_hooks = !world.staged,
          .gpus = true,
          .handles = true,
          .row_counts = false,
          .asked_counts = true,
          .result_formats = true,
          .f16_sums = true,
          .more_outputs = true,
          .overflow = true,
          .overflow_handles = true,
          .late_weights = true,
          .dynamic_scales = true,
          .returned_weights = true,
          .release = world.release,
          .shared_memory = true};
}

}  // namespace ferry::cuda
