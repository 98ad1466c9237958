// What the commands need of OpenSHMEM. shmem/ has it where it was found; no_shmem.cpp says what is missing in builds
// without.
#pragma once

#include <memory>
#include <string>

#include "tool/bench/put_link.h"
#include "tool/ranks/job.h"

namespace ferry::app {

std::string why_no_shmem();              // empty where a launcher started this process and this build can join
int num_shmem_ranks();                   // processes that were started; 0 where there is no job to join
std::unique_ptr<Job> start_shmem_job();  // collective: throws what ferry::ShmemJob does

// Collective over the ranks of one of the job's worlds: as many legs on all, and the same `most_bytes`, which is the
// most that any rank puts to another in one of them.
std::unique_ptr<PutLink> make_shmem_put_link(World& world, std::vector<PutLeg> legs, std::size_t most_bytes);

}  // namespace ferry::app
