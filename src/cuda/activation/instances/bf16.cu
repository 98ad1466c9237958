#include "ferry/detail/cuda/activation/swiglu_kernel.cuh"

namespace ferry::cuda {

SwigluLauncher bf16_swiglu() { return swiglu_launcher<Bf16>(); }

}  // namespace ferry::cuda
