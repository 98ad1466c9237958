// cuda_swiglu of emulated GPUs: that of the host, at its place in the stream. The kernels themselves run on GPUs only.
#include <cuda_runtime_api.h>

#include "ferry/cuda/activation.h"

namespace ferry {

void cuda_swiglu(const AnyFormat& format, const SwigluInput& in, const SwigluOutput& out, const SwigluOptions& options,
                 const CudaLaunch& launch) {
  SwigluInput from = in;
  SwigluOutput to = out;
  from.rows.device = from.row_offsets.device = to.payload.device = Device::cpu();
  emulated::enqueue(*static_cast<cudaStream_t>(launch.stream), [=] { swiglu(format, from, to, options); });
}

void load_cuda_swiglu(const AnyFormat&) {}

}  // namespace ferry
