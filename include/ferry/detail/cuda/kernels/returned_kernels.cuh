// Two small kernels around a combine whose weights go home (ExchangeOptions::returns_weights). They wait for no rank.
//   return_weights_kernel   before anything that sends a result: stores the weights at the tokens' homes
//   sum_returned_kernel     behind the half that receives: adds up what came
#pragma once

#include "ferry/detail/cuda/kernels/round_clock.cuh"
#include "ferry/detail/cuda/steps/returned_weights.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"

namespace ferry::cuda {

// Shared memory of a block that returns weights.
struct ReturnedMemory {
  std::uint64_t bytes_sent[kMostTeams][kMaxGpuRanks];  // of each warp
};

// I18: rows beyond those that were given have no weights. The next call throws.
__device__ inline void report_few_row_weights(const ReturnedParams& p) {
  const std::uint32_t laid_out = p.arrived.starts.group[p.plan.groups()];
  if (p.row_weights == nullptr || laid_out <= p.num_row_weights) return;
  p.links.record->rows_given = p.num_row_weights;
  p.links.record->rows_laid_out = laid_out;
  store_release(p.links.record->has_few_rows, kFewRowWeights);
}

// I25: a result's signal follows the end of this kernel, and so comes after the stores of all its threads. Nothing is
// sent to a rank that may still read the weights of a combine before: what holds results back comes first (I8).
static __global__ void __launch_bounds__(kThreads) return_weights_kernel(const __grid_constant__ ReturnedParams p) {
  extern __shared__ __align__(128) std::byte returned_memory[];
  const SyncedTeam all = SyncedTeam::of_block();
  auto& shared = *reinterpret_cast<ReturnedMemory*>(returned_memory);
  clear_counts(all, p.plan, shared.bytes_sent);
  ptx::await_earlier_kernels();
  if (!all.all(load_relaxed(p.links.state->failed) == 0)) return;
  const FixedShare warps = teams_of(32, {static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)});
  const Epoch routing = load_relaxed(p.links.state->dispatched);
  const WeightReturner returner(p, routing, shared.bytes_sent[threadIdx.x / 32]);
  const int most = static_cast<int>(p.arrived.starts.tokens[p.plan.shape.ranks]);
  const TokenSequence tokens(p.plan, max(0, min(most, p.plan.shape.max_tokens)), p.plan.rank + 1);
  for (int position = warps.index; position < tokens.length; position += warps.count)
    if (const TokenAt at = tokens.at(position); at.token < static_cast<int>(p.arrived.starts.tokens[at.source]))
      returner.return_weights(at);
  all.sync();
  add_counts(all, p.plan, shared.bytes_sent, kMostTeams, p.bytes);
  if (blockIdx.x == 0 && all.thread() == 0) report_few_row_weights(p);
}

static __global__ void __launch_bounds__(kThreads) sum_returned_kernel(const __grid_constant__ ReturnedParams p) {
  ptx::await_earlier_kernels();
  if (load_relaxed(p.links.state->failed) != 0) return;
  const Epoch routing = load_relaxed(p.links.state->dispatched);
  const auto* own = p.own != nullptr
                        ? p.own
                        : reinterpret_cast<const RoutingEntry*>(p.links.own + p.plan.map.table(routing, p.plan.rank));
  const FixedShare warps = teams_of(32, {static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)});
  for (int token = warps.index; token < p.num_tokens; token += warps.count) sum_returned(p, own, token);
}

}  // namespace ferry::cuda
