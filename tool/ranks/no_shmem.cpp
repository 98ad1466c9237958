// OpenSHMEM in a build without it: no ranks, and the reason.
#include "ferry/error.h"
#include "tool/ranks/shmem.h"

namespace ferry::app {
namespace {

constexpr const char* kWhy =
    "this build has no OpenSHMEM ranks, since it was configured without OpenSHMEM: install libopenmpi-dev and "
    "openmpi-bin, configure again with FERRY_SHMEM=AUTO and build";

}  // namespace

std::string why_no_shmem() { return kWhy; }
int num_shmem_ranks() { return 0; }
std::unique_ptr<Job> start_shmem_job() { throw Error(ErrorKind::unsupported, kWhy); }

std::unique_ptr<PutLink> make_shmem_put_link(World&, std::vector<PutLeg>, std::size_t) {
  throw Error(ErrorKind::unsupported, kWhy);
}

}  // namespace ferry::app
