#include "ferry/detail/cuda/activation/swiglu_kernel.cuh"

namespace ferry::cuda {

SwigluLauncher mxfp8_swiglu() { return swiglu_launcher<Mxfp8>(); }

}  // namespace ferry::cuda
