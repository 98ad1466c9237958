// ProcessWorld: a world whose ranks are processes, of one host or of many.
#pragma once

#include "ferry/world.h"
#include "ferry/worlds/processes.h"

namespace ferry {

// It also sends plain bytes from rank to rank. A program can give all ranks what one rank has read, such as weights.
class ProcessWorld : public World {
 public:
  // Whether this rank stores to that one's memory itself; all others are remote: reached through the network.
  virtual bool is_direct(int rank) const = 0;
  bool reaches_directly(int rank) const { return is_direct(rank); }  // its name in version 0.1

  // One rank sends, the other receives as many bytes. `send` returns when the receiver has taken them all. Sends
  // between two ranks arrive in the order of the calls. `deadline`: of each single wait for the other rank. Throws
  // PeerMissing. After that nothing more can be sent between the two.
  virtual void send(std::span<const std::byte> data, int to, std::chrono::milliseconds deadline = kDefaultDeadline) = 0;
  virtual void receive(std::span<std::byte> data, int from, std::chrono::milliseconds deadline = kDefaultDeadline) = 0;
};

struct ProcessOptions {
  ProcessPlace place{};                                   // what is left out comes from the launcher's environment
  std::chrono::milliseconds deadline = kDefaultDeadline;  // for all processes to come
};

// One rank per process, 1 to kMaxRanksPerNode of one host, on CPUs; this process's end of the world. Collective over
// the processes. Any launcher may have started them, or none: they meet as `place` says. Calls take host memory.
//   memory   each rank's symmetric memory is allocated once per exchange, and all others map it. It has no name and no
//            file, not in /dev/shm either, and goes with the last process that has it, however that one ends
//   a loss   set-up and rounds find at once that a process has ended, and at their deadline that it is stopped
//   network  TCP to rank 0 and between all, for set-up and bytes; the processes share a network namespace
//
// Throws on every rank: PeerMissing that names a process that does not come; Error(invalid_argument) where two
// processes have the same rank, or differ in the number of ranks; Error(unsupported) that names two ranks that are on
// different hosts.
std::unique_ptr<ProcessWorld> make_process_world(const ProcessOptions& options = {});

}  // namespace ferry
