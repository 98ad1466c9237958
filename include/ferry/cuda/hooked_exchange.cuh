// HookedExchange: the earlier name of CompiledExchange with hooks.
#pragma once

#include "ferry/cuda/compiled_exchange.cuh"

namespace ferry::cuda {

// Deprecated: write DirectFabric<>.
using PeerFabric = DirectFabric<>;

// Deprecated: write CompiledExchange.
template <TokenFormat Fmt, class Hooks, class Wire = PeerFabric>
using HookedExchange = CompiledExchange<Fmt, Hooks, Wire>;

}  // namespace ferry::cuda
