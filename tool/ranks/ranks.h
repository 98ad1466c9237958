// The ranks of a command: which of them this process plays, where each one's tensors lie, and how they run.
//
// Ranks of one process (threads, GPUs) are all here. Of a job of processes, each plays one rank, and the process with
// rank 0 reads and writes the files.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ferry/world.h"
#include "tool/ranks/job/job.h"

namespace ferry::app {

inline constexpr int kHostMemory = -1;  // in place of a device: the rank's tensors are in host memory

class Ranks {
 public:
  // `mine` are this process's ends of one world, `devices` the GPU of each, or kHostMemory.
  Ranks(std::vector<std::unique_ptr<World>> mine, std::vector<int> devices)
      : mine_(std::move(mine)), devices_(std::move(devices)) {}

  const char* backend() const { return mine_.front()->backend(); }
  int size() const { return mine_.front()->size(); }           // of the whole world
  int here() const { return static_cast<int>(mine_.size()); }  // played by this process
  bool is_part() const { return here() < size(); }             // other processes play the other ranks
  bool has_first() const { return mine_.front()->rank() == 0; }
  bool on_gpus() const { return devices_.front() != kHostMemory; }
  int device_of(const World& world) const {
    return devices_[static_cast<std::size_t>(world.rank() - mine_.front()->rank())];
  }

  World& world() const { return *mine_.front(); }  // of this process's first rank
  // Runs `body` for each rank of this process on a thread of its own and rethrows the first error.
  void run(const std::function<void(World&)>& body) const { run_worlds(mine_, body); }

 private:
  std::vector<std::unique_ptr<World>> mine_;  // consecutive ranks
  std::vector<int> devices_;
};

// How many of the ranks share this host's cores.
int num_ranks_of_this_host(const Ranks& ranks);

enum class RanksAre { of_one_process, processes };

// What --backend names. The functions look at this machine, and may be slow the first time.
struct Backend {
  const char* name;
  WorldKind kind;  // of its worlds
  const char* ranks_are;
  std::string (*why_missing)();  // empty where it works here, else what to do about it
  int (*most_ranks)();           // that it can have here
  Ranks (*make_on_nodes)(int ranks, int nodes);
  RanksAre ranks;
  // Where ranks are processes: joins the others. `staged`: the worlds' calls take host memory whatever the ranks are.
  std::unique_ptr<Job> (*start_job)(bool staged);

  Ranks make(int of, int nodes = 1) const { return make_on_nodes(of, nodes); }
};
const std::vector<Backend>& backends();
// Whether it works here or not. Throws Error(unsupported) where there is none of this name.
const Backend& backend_named(std::string_view name);
bool is_gpu_backend(const Backend& backend);
// What the exchanges of its worlds can do, whether it works here or not. nvshmem: of ranks on several hosts.
WorldCapabilities capabilities_of(const Backend& backend);

// From here on several ranks of this process, or of its job, may have the same GPU, where there are fewer than ranks.
// Before anything else of GPUs is called.
void share_gpus();
bool gpus_are_shared();
// Rank by rank.
std::vector<int> gpus_of_ranks(int ranks);

// The backend that `name` stands for; auto is the GPUs where they are enough for `ranks`, else OpenSHMEM where a
// launcher started several processes, else the CPU. Throws Error(unsupported) where this build or this machine lacks
// it.
const Backend& choose_backend(std::string_view name, int ranks = 1);

// Throws Error(invalid_argument) unless the ranks fit the backend and the nodes fit both.
void require_ranks(const Backend& backend, int ranks, int nodes);

}  // namespace ferry::app
