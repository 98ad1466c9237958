// CompiledNvshmemExchange: CompiledExchange over NVSHMEM, on one node or several. It has the same formats and hooks in
// the same calls; only how the kernels reach other ranks differs.
//
// Compile with nvcc and link ferry::nvshmem_kernels in place of ferry::nvshmem and ferry::cuda_kernels. It brings the
// headers of the kernels and NVSHMEM's, relocatable device code, and --maxrregcount=64. The kernels leave a thread 64
// registers, and NVSHMEM's functions, which they call, must fit in there. CMake links all device code of the program
// once, with NVSHMEM's.
#pragma once

#include "ferry/cuda/compiled_exchange.cuh"
#include "ferry/cuda/nvshmem_world.h"
#include "ferry/detail/nvshmem/nvshmem_puts.cuh"

namespace ferry::cuda {

// For a world of make_nvshmem_world. Kernels put to ranks of other nodes, and store to ranks of their own node.
template <TokenFormat Fmt, class Hooks = NoHooks, TokenFormat Results = Bf16>
using CompiledNvshmemExchange = CompiledExchange<Fmt, Hooks, NvshmemFabric, Results>;

}  // namespace ferry::cuda
