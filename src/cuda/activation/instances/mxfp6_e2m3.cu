#include "ferry/detail/cuda/activation/swiglu_kernel.cuh"

namespace ferry::cuda {

SwigluLauncher mxfp6_e2m3_swiglu() { return swiglu_launcher<Mxfp6E2m3>(); }

}  // namespace ferry::cuda
