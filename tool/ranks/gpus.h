// What the commands need of GPUs, without a CUDA header.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ferry/world.h"
#include "tool/ranks/job/job.h"
#include "tool/ranks/rank_calls.h"

namespace ferry::app {

struct GpuInfo {
  std::string name;
  int multiprocessors = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t memory_available_bytes = 0;
  std::uint64_t l2_bytes = 0;
  std::vector<int> reaches;  // other GPUs whose memory it can read and write
};

// Why a build with CUDA finds no GPU. Versions are CUDA's, such as 13000; a driver of 0: there is none. `error`: what
// the runtime says, empty where it only lists none.
std::string why_no_gpu_is_found(int driver, int runtime, const std::string& error);

// The class itself is what a build without CUDA has: no GPU, and the reason. ranks/cuda derives what finds them.
class Gpus {
 public:
  virtual ~Gpus() = default;
  virtual std::string why_none() const;        // empty where there is one
  virtual int count() const { return 0; }      // that this build and this process can use
  virtual std::vector<GpuInfo> infos() const;  // one for each of them
  virtual std::string versions() const;        // "driver 13.0, runtime 13.0"
  virtual int of_this_process() const;         // where a launcher started several: the device of this one
  // One rank for each device, all in this process. `staged`: calls take host memory (for the conformance suite).
  virtual std::vector<std::unique_ptr<World>> make_worlds(const std::vector<int>& devices, bool staged) const;
  // Where a launcher started several processes of this host: each has a GPU. Collective. `staged`: as above.
  virtual std::unique_ptr<Job> start_job(bool staged) const;
  // Throws Error(system) where the device has too little memory for the rank's tensors.
  virtual std::unique_ptr<RankCalls> make_calls(int device, const Shape& shape, const RowLayout& layout,
                                                RowOrder order) const;
};

const Gpus& gpus();                // those of set_gpus(), else none
void set_gpus(const Gpus& found);  // `found` outlives every use

}  // namespace ferry::app
