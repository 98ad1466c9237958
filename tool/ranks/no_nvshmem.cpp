// NVSHMEM in a build without it: no ranks, and the reason.
#include "ferry/error.h"
#include "tool/ranks/nvshmem.h"

namespace ferry::app {
namespace {

constexpr const char* kWhy =
    "this build has no NVSHMEM ranks, since it was configured without CUDA or without NVSHMEM: install the CUDA "
    "toolkit (nvcc 13) and nvidia-nvshmem-cu13 of pip, or give NVSHMEM_HOME, configure again and build";

}  // namespace

std::string why_no_nvshmem() { return kWhy; }
int num_nvshmem_ranks() { return 0; }
std::unique_ptr<Job> start_nvshmem_job(bool) { throw Error(ErrorKind::unsupported, kWhy); }
PutSpeeds measure_put_speeds(const Ranks&, std::size_t) { throw Error(ErrorKind::unsupported, kWhy); }

}  // namespace ferry::app
