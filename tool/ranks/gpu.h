// What the commands need of GPUs, without a CUDA header. gpu/ has it where CUDA was found; no_cuda.cpp says what is
// missing in builds without.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ferry/world.h"
#include "tool/layer/rank_calls.h"
#include "tool/ranks/job.h"

namespace ferry::app {

std::string why_no_gpus();  // empty where there is one
int num_gpus();             // that this build and this process can use

struct GpuInfo {
  std::string name;
  int multiprocessors = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t memory_available_bytes = 0;
  std::uint64_t l2_bytes = 0;
  std::vector<int> reaches;  // other GPUs whose memory it can read and write
};
std::vector<GpuInfo> gpu_infos();
std::string cuda_versions();  // "driver 13.0, runtime 13.0"

// One rank for each device, all in this process. `staged`: calls take host memory (for the conformance suite).
std::vector<std::unique_ptr<World>> make_gpu_worlds(const std::vector<int>& devices, bool staged = false);

// Where a launcher started several processes of this host: each has a GPU. Collective. `staged`: as above.
std::unique_ptr<Job> start_gpu_job(bool staged);
int gpu_of_this_process();

// Throws Error(system) where the device has too little memory for the rank's tensors.
std::unique_ptr<RankCalls> make_gpu_calls(int device, const Shape& shape, const RowLayout& layout);

}  // namespace ferry::app
