// Symmetric memory on every rank of an OpenSHMEM world, without an exchange. The benchmarks measure puts with it.
#pragma once

#include <memory>

#include "ferry/world.h"
#include "shmem/symmetric_memory.h"

namespace ferry::cpu {

// Collective. `world` is one of ShmemJob's. The first `zeroed` bytes are zero. Throws what making an exchange does.
std::unique_ptr<SymmetricMemory> share_memory(World& world, std::size_t bytes, std::size_t zeroed,
                                              std::chrono::milliseconds deadline);

}  // namespace ferry::cpu
