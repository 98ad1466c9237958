// The plain CompiledExchange, for worlds of NVSHMEM that are one node.
#pragma once

#include "gpu/hooks/hooked_calls.h"

namespace ferry::test {

std::unique_ptr<HookedCalls> make_peer_bf16_with_weight(World& world, const Shape& shape,
                                                        const ExchangeOptions& options);

}  // namespace ferry::test
