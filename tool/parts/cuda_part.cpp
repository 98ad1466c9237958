#include "tool/bench/cuda/measure.h"
#include "tool/layer/cuda/cuda_experts.h"
#include "tool/parts/parts.h"
#include "tool/ranks/cuda/cuda_gpus.h"

namespace ferry::app {

void register_cuda_part() {
  static const CudaGpus found;
  set_gpus(found);
  gpu_measurers().make_bench = make_cuda_bench;
#if defined(FERRY_HAVE_CUBLAS)
  gpu_expert_maker().make = make_cuda_experts;
#endif
}

}  // namespace ferry::app
