// Ranks as processes that OpenSHMEM's launcher started, on one host or on many (library target ferry::shmem).
//
//   int main() {
//     ferry::ShmemJob job;                                    // oshrun -np 4 ./program
//     {
//       const auto world = job.make_world();                  // this process is one of its ranks
//       ferry::Exchange exchange(*world, shape);
//       ...
//     }
//     job.finish();
//   }
//
// Ranks that share memory store to each other directly; all others are reached through OpenSHMEM's puts.
#pragma once

#include <cstddef>
#include <memory>

#include "ferry/worlds/process_world.h"

namespace ferry {

namespace cpu {
class ShmemBootstrap;
class ShmemProcess;
}  // namespace cpu

struct ShmemOptions {
  // Symmetric memory of this process: for all exchanges that live at one time, and the same in every process. Pages
  // take memory once they are used. 0: what SHMEM_SYMMETRIC_HEAP_SIZE says, else a share of the machine's memory.
  std::size_t heap_bytes = 0;
  // How long start-up may take until every process has come.
  std::chrono::milliseconds start_deadline{60'000};
};

// This process's part of the job. A process makes one, once. How the process ends:
//   after finish()     as it likes
//   without finish()   by std::_Exit, after an error that it does not recover from: OpenSHMEM's own clean-up would wait
//                      for processes that may be gone
class ShmemJob {
 public:
  // Collective over all processes that the launcher started. Throws Error(unsupported) where none did or OpenSHMEM
  // lacks threads, Error(peer_missing) where not every process comes within the deadline, Error(system) for memory.
  explicit ShmemJob(const ShmemOptions& options = {});
  ~ShmemJob();
  ShmemJob(const ShmemJob&) = delete;
  ShmemJob& operator=(const ShmemJob&) = delete;

  int rank() const;
  int size() const;

  // Collective over all processes. The first `ranks` of them (0: all) make up the world; the others get null. Ranks of
  // different logical nodes use puts even where they share memory: `nodes` runs of consecutive ranks, as even as can
  // be. Worlds and their exchanges are destroyed before finish().
  std::unique_ptr<ProcessWorld> make_world(int ranks = 0, int nodes = 1,
                                           std::chrono::milliseconds deadline = kDefaultDeadline);

  // Collective over all processes, and the last call: waits for all and ends OpenSHMEM. Throws PeerMissing, or
  // Error(system) where OpenSHMEM does not end within the deadline.
  void finish(std::chrono::milliseconds deadline = kDefaultDeadline);

 private:
  std::shared_ptr<cpu::ShmemProcess> process_;
  std::unique_ptr<cpu::ShmemBootstrap> bootstrap_;  // of all processes
};

}  // namespace ferry
