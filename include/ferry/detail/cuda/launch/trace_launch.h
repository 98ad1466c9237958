// Launchers of the kernels around traced ones (trace_kernels.cuh).
#pragma once

#include <cuda_runtime_api.h>

#include "ferry/detail/cuda/state/trace_records.h"

namespace ferry::cuda {

// Loads both on the current device.
void prepare_trace();
void launch_begin_record(const TraceParams& params, cudaStream_t stream);
void launch_end_record(const TraceParams& params, cudaStream_t stream);

}  // namespace ferry::cuda
