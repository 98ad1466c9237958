#include "ferry/detail/cuda/activation/swiglu_kernel.cuh"

namespace ferry::cuda {

SwigluLauncher mxfp4_swiglu() { return swiglu_launcher<Mxfp4>(); }

}  // namespace ferry::cuda
