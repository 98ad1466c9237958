// Backends whose ranks are processes and that a build may lack: OpenSHMEM and NVSHMEM.
#pragma once

#include <memory>
#include <string>

#include "tool/ranks/job/job.h"

namespace ferry::app {

struct JobStarter {
  std::string (*why_missing)();                // empty where this process can join a job
  int (*num_ranks)();                          // processes that were started; 0 where there is no job to join
  std::unique_ptr<Job> (*start)(bool staged);  // collective. `staged`: the worlds' calls take host memory
};

// What ranks/shmem and ranks/nvshmem have set; else one that starts nothing and says what to install.
const JobStarter& shmem_starter();
const JobStarter& nvshmem_starter();
void set_shmem_starter(const JobStarter& starter);
void set_nvshmem_starter(const JobStarter& starter);

}  // namespace ferry::app
