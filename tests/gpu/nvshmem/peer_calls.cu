// Kernels over DirectFabric, for worlds of NVSHMEM that are one node.
#include "gpu/nvshmem/peer_calls.h"

#include "ferry/cuda/hooked_exchange.cuh"
#include "gpu/hooks/hooked_calls.cuh"

namespace ferry::test {
namespace {

struct PeerWeight {
  HookBodies bodies;
  static PeerWeight of(const HookValues& values) { return {{values}}; }
  __device__ float router_weight(int token, int k) const { return bodies.weight(token, k); }
};

}  // namespace

std::unique_ptr<HookedCalls> make_peer_bf16_with_weight(World& world, const Shape& shape,
                                                        const ExchangeOptions& options) {
  return make_calls<cuda::HookedExchange<Bf16, PeerWeight>, PeerWeight>(world, shape, options);
}

}  // namespace ferry::test
