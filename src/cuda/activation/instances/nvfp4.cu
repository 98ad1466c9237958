#include "ferry/detail/cuda/activation/swiglu_kernel.cuh"

namespace ferry::cuda {

SwigluLauncher nvfp4_swiglu() { return swiglu_launcher<Nvfp4>(); }

}  // namespace ferry::cuda
