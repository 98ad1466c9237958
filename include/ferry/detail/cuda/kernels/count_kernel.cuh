// Two small kernels of a dispatch whose host asks what comes (Exchange::wait_for_counts).
//   count_kernel   one block, behind the half that sends: finds the row starts, as the half that receives does again,
//                  and writes them to the host
//   excess_kernel  one warp, before a dispatch that has more tokens than it can take: says so at every rank. The
//                  dispatch then sends nothing (I2)
#pragma once

#include "ferry/detail/cuda/fabric/direct_fabric.cuh"
#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/steps/token_lists.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"
#include "ferry/detail/protocol/dispatch_receive.h"

namespace ferry::cuda {

inline constexpr int kExcessThreads = 32;

static __global__ void __launch_bounds__(kExcessThreads) excess_kernel(const __grid_constant__ ExcessParams p) {
  ptx::await_earlier_kernels();
  if (load_relaxed(p.links.state->failed) != 0) return;
  const Epoch routing = load_relaxed(p.links.state->dispatched) + 1;
  for (int peer = static_cast<int>(threadIdx.x); peer < p.plan.shape.ranks; peer += kExcessThreads) {
    if (p.plan.is_masked(peer)) continue;
    auto& header = *reinterpret_cast<RoutingHeader*>(p.links.heap[peer] + p.plan.map.header(routing, p.plan.rank));
    header.excess_tokens = p.num_tokens;
    header.excess_routing = routing;
  }
}

// The smallest rank that has too many tokens, and how many; rank -1: none. Relies on I2, after await_routing. One
// thread.
__device__ inline ExcessTokens find_excess(const Plan& plan, const PeerLinks& links, Epoch routing) {
  for (int source = 0; source < plan.shape.ranks; ++source) {
    const auto& header = *reinterpret_cast<const RoutingHeader*>(links.own + plan.map.header(routing, source));
    if (!plan.is_masked(source) && header.excess_routing == routing) return {source, header.excess_tokens};
  }
  return {};
}

// Shared memory of the block. Row starts follow, and the first rows of all sources (HostCounts).
struct CountMemory {
  WarpTotals totals;
};

// I1: it ends when every rank has begun the dispatch, so a dispatch that is refused by then has ended as any other. The
// host sees all of it when it sees the number of its question.
static __global__ void __launch_bounds__(kThreads) count_kernel(const __grid_constant__ CountParams p) {
  extern __shared__ __align__(128) std::byte count_memory[];
  const SyncedTeam all = SyncedTeam::of_block();
  ptx::await_earlier_kernels();
  // Asked together: a fast thread of this block may fail before a slow one has looked.
  if (!all.all(load_relaxed(p.links.state->failed) == 0)) return;
  const Epoch routing = load_relaxed(p.links.state->dispatched);
  auto& memory = *reinterpret_cast<CountMemory*>(count_memory);
  auto* const words = reinterpret_cast<std::uint32_t*>(count_memory + sizeof(CountMemory));
  std::uint32_t* const offsets = words + row_start_words(p.plan);
  DirectFabric<> fabric(p.links, p.plan, 0);
  const RowStartsToFill starts = row_starts_at(p.plan, words);
  const GroupsWanted wanted{p.shared_rows, 0};
  RowStartFinder<DirectFabric<>> finder(all, p.plan, fabric, routing, wanted, starts, memory.totals);
  if (!finder.find() || !await_routing(p.plan, fabric, all, routing)) return;
  const bool by_source = p.order == RowOrder::by_source;
  if (by_source && !find_source_rows(all, p.plan, fabric, routing, starts, offsets)) return;
  const int count = row_start_words(p.plan) + (by_source ? p.plan.shape.ranks + 1 : 0);
  for (int i = all.thread(); i < count; i += all.size()) p.to_words[i] = words[i];
  all.sync();
  if (all.thread() != 0) return;
  p.to->excess = find_excess(p.plan, p.links, routing);
  store_release(p.to->answered, p.question);
}

}  // namespace ferry::cuda
