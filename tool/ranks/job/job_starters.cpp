// Builds without OpenSHMEM or NVSHMEM: no job, and the reason.
#include "tool/ranks/job/job_starters.h"

#include "ferry/error.h"

namespace ferry::app {
namespace {

std::string why_no_shmem() {
  return "this build has no OpenSHMEM ranks, since it was configured without OpenSHMEM: install libopenmpi-dev and "
         "openmpi-bin, " FERRY_BUILD_WITH_SHMEM;  // as CMake says it
}

std::string why_no_nvshmem() {
  return "this build has no NVSHMEM ranks: " FERRY_WHY_NO_NVSHMEM;  // as CMake says it
}

int no_ranks() { return 0; }

template <std::string (*Why)()>
std::unique_ptr<Job> refuse(bool) {
  throw Error(ErrorKind::unsupported, Why());
}

JobStarter& shmem() {
  static JobStarter starter{why_no_shmem, no_ranks, refuse<why_no_shmem>};
  return starter;
}

JobStarter& nvshmem() {
  static JobStarter starter{why_no_nvshmem, no_ranks, refuse<why_no_nvshmem>};
  return starter;
}

}  // namespace

const JobStarter& shmem_starter() { return shmem(); }
const JobStarter& nvshmem_starter() { return nvshmem(); }
void set_shmem_starter(const JobStarter& starter) { shmem() = starter; }
void set_nvshmem_starter(const JobStarter& starter) { nvshmem() = starter; }

}  // namespace ferry::app
