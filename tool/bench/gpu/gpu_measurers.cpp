// What measures on GPUs in this build, or the reason why nothing does.
#include "tool/bench/gpu/bench_gpu.h"
#include "tool/ranks/gpus.h"
#include "tool/ranks/job/job_starters.h"

namespace ferry::app {

GpuMeasurers& gpu_measurers() {
  static GpuMeasurers measurers;
  return measurers;
}

std::unique_ptr<GpuBench> make_gpu_bench(const Backend& backend, int ranks, int nodes, bool baseline) {
  if (gpu_measurers().make_bench == nullptr) throw Error(ErrorKind::unsupported, gpus().why_none());
  return gpu_measurers().make_bench(backend, ranks, nodes, baseline);
}

PutSpeeds measure_put_speeds(const Ranks& ranks, std::size_t message) {
  if (gpu_measurers().measure_puts == nullptr) throw Error(ErrorKind::unsupported, nvshmem_starter().why_missing());
  return gpu_measurers().measure_puts(ranks, message);
}

}  // namespace ferry::app
