#include "ferry/detail/cuda/activation/swiglu_kernel.cuh"

namespace ferry::cuda {

SwigluLauncher mxfp6_e3m2_swiglu() { return swiglu_launcher<Mxfp6E3m2>(); }

}  // namespace ferry::cuda
