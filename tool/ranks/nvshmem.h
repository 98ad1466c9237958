// What the commands need of NVSHMEM. nvshmem/ has it where it was found; no_nvshmem.cpp says what is missing in builds
// without.
#pragma once

#include <memory>
#include <string>

#include "tool/bench/bench_gpu.h"
#include "tool/ranks/job.h"
#include "tool/ranks/ranks.h"

namespace ferry::app {

std::string why_no_nvshmem();  // empty where this build has it, there is a GPU, and this process has a place in a job
int num_nvshmem_ranks();       // processes that were started; 0 where there is no job to join
std::unique_ptr<Job> start_nvshmem_job(bool staged);  // collective

// Plain puts of messages of `message` bytes by NVSHMEM, all ranks to all others at once. Collective.
struct PutSpeeds {
  std::vector<GpuSpeeds::Point> points;
  std::vector<PutRate> rates;
};
PutSpeeds measure_put_speeds(const Ranks& ranks, std::size_t message);

}  // namespace ferry::app
