// GPUs in a build without CUDA: none, and the reason.
#include "tool/bench/bench_gpu.h"
#include "tool/ranks/gpu.h"

namespace ferry::app {
namespace {

constexpr const char* kWhy =
    "this build has no GPU ranks, since it was configured without CUDA: install the CUDA toolkit (nvcc 13), configure "
    "again with FERRY_CUDA=AUTO and build";

}  // namespace

std::string why_no_gpus() { return kWhy; }
int num_gpus() { return 0; }
std::vector<GpuInfo> gpu_infos() { return {}; }
std::string cuda_versions() { return {}; }
std::vector<std::unique_ptr<World>> make_gpu_worlds(const std::vector<int>&, bool) {
  throw Error(ErrorKind::unsupported, kWhy);
}
std::unique_ptr<Job> start_gpu_job(bool) { throw Error(ErrorKind::unsupported, kWhy); }
int gpu_of_this_process() { throw Error(ErrorKind::unsupported, kWhy); }
std::unique_ptr<GpuBench> make_gpu_bench(const Backend&, int, int, bool) { throw Error(ErrorKind::unsupported, kWhy); }
std::unique_ptr<RankCalls> make_gpu_calls(int, const Shape&, const RowLayout&) {
  throw Error(ErrorKind::unsupported, kWhy);
}

}  // namespace ferry::app
