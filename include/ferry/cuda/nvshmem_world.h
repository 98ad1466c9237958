// Worlds of GPUs on several nodes, by NVSHMEM: one process per GPU.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "ferry/world.h"
#include "ferry/worlds/process_world.h"
#include "ferry/worlds/processes.h"

namespace ferry {

struct NvshmemOptions {
  ProcessPlace place{};    // what is left out comes from the launcher's environment
  int device = -1;         // of this process; -1: its only one, or that of its local rank
  int nodes = 0;           // logical: the ranks are split over them in order; 0: ranks_per_node says
  int ranks_per_node = 0;  // ranks of a node are consecutive; 0: those whose memory NVSHMEM can map are a node
  std::size_t heap_bytes = std::size_t{2} << 30;  // symmetric memory for all exchanges of this world, on each rank
  std::chrono::milliseconds deadline = kDefaultDeadline;  // for all processes to come
  bool staged = false;                                    // calls take host memory, as of make_staged_cuda_worlds
  bool share_gpus = false;  // several ranks may have the same GPU, and take turns there: for tests
};

// This process's end of the world; one world at a time in a process. Collective over the processes, which meet at the
// place's address and need no MPI; under mpirun its environment gives rank and size.
//
// Ranks of one node store to each other's memory. Ranks of other nodes are reached by puts of whole messages from send
// buffers, even if their memory could be mapped: so nodes and ranks_per_node divide one machine into several nodes. A
// node may have ranks whose memory cannot be mapped:
//   with `nodes`           they are reached by puts
//   with `ranks_per_node`  they are refused
//
// Exchanges: as of make_cuda_process_world, and hooks on several nodes are a
// CompiledNvshmemExchange's (compiled_nvshmem_exchange.cuh). Their memory comes from heap_bytes (ferry::memory_use with
// has_remote_ranks = true says how much each takes). Once the world is made, every wait has a deadline.
// Throws PeerMissing, Error(invalid_argument) for options that cannot be or do not fit each other, and where two ranks
// have the same GPU without share_gpus, or Error(unsupported) where NVSHMEM does not start or two ranks of one
// node cannot reach each other.
std::unique_ptr<ProcessWorld> make_nvshmem_world(const NvshmemOptions& options = {});

}  // namespace ferry
