// HookedNvshmemExchange: the earlier name of CompiledNvshmemExchange with hooks.
#pragma once

#include "ferry/cuda/compiled_nvshmem_exchange.cuh"
#include "ferry/cuda/hooked_exchange.cuh"

namespace ferry::cuda {

// Deprecated: write CompiledNvshmemExchange.
template <TokenFormat Fmt, class Hooks>
using HookedNvshmemExchange = CompiledNvshmemExchange<Fmt, Hooks>;

}  // namespace ferry::cuda
