// Memory on every rank of a world of processes of one host, without an exchange. The benchmarks measure puts with it.
#pragma once

#include "cpu/fabric/host_fabric.h"
#include "ferry/world.h"

namespace ferry::cpu {

// Collective. `world` is of make_process_world. Zeroed memory of all ranks, by rank, mapped into this process. Throws
// what making an exchange does.
Heaps share_process_memory(World& world, std::size_t bytes, std::chrono::milliseconds deadline);

}  // namespace ferry::cpu
