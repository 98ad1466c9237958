#include "ferry/detail/cuda/activation/swiglu_kernel.cuh"

namespace ferry::cuda {

SwigluLauncher fp8_block128_ue8m0_swiglu() { return swiglu_launcher<Fp8Block128Ue8m0>(); }

}  // namespace ferry::cuda
