#include "ferry/detail/cuda/activation/swiglu_kernel.cuh"

namespace ferry::cuda {

SwigluLauncher fp8_block128_swiglu() { return swiglu_launcher<Fp8Block128>(); }

}  // namespace ferry::cuda
