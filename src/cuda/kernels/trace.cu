// The kernels that write when others began and ended.
#include "ferry/detail/cuda/kernels/trace_kernels.cuh"
#include "ferry/detail/cuda/launch/launch.cuh"
#include "ferry/detail/cuda/launch/trace_launch.h"

namespace ferry::cuda {

void prepare_trace() {
  prepare_kernel(&begin_record_kernel, kTraceThreads, 0);
  prepare_kernel(&end_record_kernel, kTraceThreads, 0);
}
void launch_begin_record(const TraceParams& params, cudaStream_t stream) {
  launch(&begin_record_kernel, params, {.threads = kTraceThreads}, stream);
}
void launch_end_record(const TraceParams& params, cudaStream_t stream) {
  launch(&end_record_kernel, params, {.threads = kTraceThreads}, stream);
}

}  // namespace ferry::cuda
