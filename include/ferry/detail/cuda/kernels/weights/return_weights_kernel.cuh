// A small kernel of a combine whose weights go home (ExchangeOptions::returns_weights), before anything that sends a
// result: brings the weights to the tokens' homes. It waits for no rank.
#pragma once

#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/steps/routing/peer_counts.cuh"
#include "ferry/detail/cuda/steps/weights/returned_weights.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"

namespace ferry::cuda {

// Shared memory of a block that returns weights.
struct ReturnedMemory {
  PeerCounts bytes_sent;  // a warp is a team
};

// I18: rows beyond those that were given have no weights. The next call throws.
__device__ inline void report_few_row_weights(const ReturnedParams& p) {
  const std::uint32_t laid_out = p.arrived.starts.group[p.plan.groups()];
  if (p.row_weights == nullptr || laid_out <= p.num_row_weights) return;
  p.links.record->rows_given = p.num_row_weights;
  p.links.record->rows_laid_out = laid_out;
  store_release(p.links.record->has_few_rows, kFewRowWeights);
}

// I25: a result's signal follows the end of this kernel, and so comes after the stores of all its threads; each block
// waits until its puts have landed. Nothing is sent to a rank that may still read the weights of a combine before: what
// holds results back comes first (I8).
template <DeviceFabric F>
__global__ void __launch_bounds__(kThreads) return_weights_kernel(const __grid_constant__ ReturnedParams p) {
  extern __shared__ __align__(128) std::byte returned_memory[];
  const SyncedTeam all = SyncedTeam::of_block();
  auto& shared = *reinterpret_cast<ReturnedMemory*>(returned_memory);
  clear_counts<typename F::Reach>(all, p.plan, shared.bytes_sent);
  ptx::await_earlier_kernels();
  if (!all.all(!p.links.state->has_stopped())) return;
  const FixedShare warps = teams_of(32, {static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)});
  const Epoch routing = load_relaxed(p.links.state->dispatched);
  const WeightReturner<typename F::Reach> returner(p, routing,
                                                   {shared.bytes_sent, static_cast<int>(threadIdx.x / 32), p.bytes});
  const int most = static_cast<int>(p.arrived.starts.tokens[p.plan.shape.ranks]);
  const TokenSequence tokens(p.plan, max(0, min(most, p.plan.shape.max_tokens)), p.plan.rank + 1);
  for (int position = warps.index; position < tokens.length; position += warps.count)
    if (const TokenAt at = tokens.at(position); at.token < tokens_to_answer(p.plan, p.arrived, at.source))
      returner.return_weights(at);
  all.sync();
  if constexpr (F::kHasRemoteRanks)
    if (all.thread() == 0) typename F::Reach::Puts(p.links).quiet();
  add_counts<typename F::Reach>(all, p.plan, shared.bytes_sent, p.bytes);
  if (blockIdx.x == 0 && all.thread() == 0) report_few_row_weights(p);
}

}  // namespace ferry::cuda
