// The combine kernel: every block sends its share of the results, then sums its share of the tokens. The phases are
// protocol/combine.h's. No token format takes part: what travels is bf16.
#pragma once

#include "cuda/block_rows.cuh"
#include "cuda/kernel_params.h"
#include "cuda/last_block.cuh"
#include "cuda/peer_fabric.cuh"
#include "cuda/token_scratch.cuh"

namespace ferry::cuda {

struct CombineShared {
  TokenScratch scratch;
  std::uint64_t bytes[kMaxRanksPerNode];
};
inline constexpr std::size_t kCombineSharedBytes = (sizeof(CombineShared) + 127) / 128 * 128;

__global__ void __launch_bounds__(512) combine_kernel(const __grid_constant__ CombineParams p) {
  extern __shared__ __align__(128) std::byte memory[];
  auto& shared = *reinterpret_cast<CombineShared*>(memory);
  const BlockGroup g;
  for (int i = g.thread(); i < kMaxRanksPerNode; i += g.size()) shared.bytes[i] = 0;
  g.sync();
  DeviceState& state = *p.links.state;
  const Epoch epoch = load_relaxed(state.dispatched);
  const Block block{static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)};
  PeerFabric fabric(p.links, memory + kCombineSharedBytes, p.plan.map.result_bytes());
  if (p.sends)
    send_results(p.plan, fabric, g, epoch, block, p.starts, p.in, nullptr, shared.scratch, ResultCounts{shared.bytes});
  const bool ok =
      !p.receives || receive_results(p.plan, fabric, g, epoch, block, p.starts, p.in, p.out, shared.scratch);
  add_counts(g, p.plan, shared.bytes, p.stats.bytes);
  if (!is_last_block(g, state) || !ok || !p.receives) return;
  give_back(g, p.plan, fabric, state, epoch);
  if (g.thread() == 0) fetch_add_relaxed(state.combines, std::uint64_t{1});
}

}  // namespace ferry::cuda
