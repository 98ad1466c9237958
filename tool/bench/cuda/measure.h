// The measurements of the GPU benchmark, each of them collective over the ranks of a world.
#pragma once

#include "tool/bench/gpu/bench_gpu.h"
#include "tool/ranks/ranks.h"

namespace ferry::app {

std::unique_ptr<GpuBench> make_cuda_bench(const Backend& backend, int ranks, int nodes, bool baseline);
GpuSpeeds measure_speeds(const Ranks& ranks);
GpuMeasurement measure_gpu_exchange(const Ranks& ranks, const BenchCase& bench);

// NCCL's communicators for the ranks.
class Nccl {
 public:
  virtual ~Nccl() = default;
  virtual NcclTimes measure(const BenchCase& bench) = 0;
};
// `ranks` must outlive it. Throws Error(unsupported), saying what to install, where this build has no NCCL.
std::unique_ptr<Nccl> make_nccl(const Ranks& ranks);

}  // namespace ferry::app
