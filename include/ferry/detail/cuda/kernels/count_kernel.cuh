// Two small kernels of a dispatch whose host asks what comes (Exchange::wait_for_counts).
//   count_kernel   one block, behind the half that sends: finds the row starts, as the half that receives does again,
//                  and writes them to the host
//   excess_kernel  one warp, before a dispatch that has more tokens than it can take: says so at every rank. The
//                  dispatch then sends nothing (I2)
#pragma once

#include <cstddef>

#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/fabric/excess_tokens.cuh"
#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/steps/routing/given_counts.cuh"
#include "ferry/detail/cuda/steps/token_lists.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"
#include "ferry/detail/protocol/await_routing.h"
#include "ferry/detail/protocol/dispatch_receive.h"

namespace ferry::cuda {

inline constexpr int kExcessThreads = 32;

template <RankReach Reach>
__device__ void tell_excess_at(const PeerLinks& links, int peer, std::size_t header, std::uint32_t tokens,
                               Epoch routing) {
  if constexpr (Reach::kHasRemoteRanks) {
    if (!Reach(links).is_direct(peer)) {
      const typename Reach::Puts transport(links);
      transport.store32(peer, header + offsetof(RoutingHeader, excess_tokens), tokens);
      transport.store32(peer, header + offsetof(RoutingHeader, excess_routing), low_of(routing));
      transport.store32(peer, header + offsetof(RoutingHeader, excess_routing) + sizeof(std::uint32_t),
                        high_of(routing));
      return;
    }
  }
  auto& theirs = *reinterpret_cast<RoutingHeader*>(Reach(links).heap_of(peer) + header);
  theirs.excess_tokens = tokens;
  theirs.excess_routing = routing;
}

template <DeviceFabric F>
__global__ void __launch_bounds__(kExcessThreads) excess_kernel(const __grid_constant__ ExcessParams p) {
  ptx::await_earlier_kernels();
  if (p.links.state->has_stopped()) return;
  const Epoch routing = load_relaxed(p.links.state->dispatched) + 1;
  const std::size_t header = p.plan.map.header(routing, p.plan.rank);
  for (int peer = static_cast<int>(threadIdx.x); peer < p.plan.shape.ranks; peer += kExcessThreads)
    if (!p.plan.is_masked(peer)) tell_excess_at<typename F::Reach>(p.links, peer, header, p.num_tokens, routing);
}

// Shared memory of the block. Row starts follow, and the first rows of all sources (HostCounts).
struct CountMemory {
  WarpTotals totals;
};

// Relies on I2.
__device__ inline void tell_given_counts(const SyncedTeam& all, const CountParams& p, Epoch routing) {
  std::uint32_t* const to = p.to_words + given_counts_at(p.plan);
  for (int local = all.thread(); local < p.plan.local_experts(); local += all.size()) {
    const auto count = static_cast<std::uint64_t>(given_count_of(p.plan, p.links.own, routing, local));
    to[2 * local] = static_cast<std::uint32_t>(count);
    to[2 * local + 1] = static_cast<std::uint32_t>(count >> 32);
  }
}

// I1: it ends when every rank has begun the dispatch, so a dispatch that is refused by then has ended as any other.
// Nobody waits for what is put in one that is refused. So each rank waits until its own puts have landed: none comes
// when its slot, or its send buffer, is in use again. The host sees all of it when it sees the number of its question.
template <DeviceFabric F>
__global__ void __launch_bounds__(kThreads) count_kernel(const __grid_constant__ CountParams p) {
  extern __shared__ __align__(128) std::byte count_memory[];
  const SyncedTeam all = SyncedTeam::of_block();
  ptx::await_earlier_kernels();
  // Asked together: a fast thread of this block may fail before a slow one has looked.
  if (!all.all(!p.links.state->has_stopped())) return;
  const Epoch routing = load_relaxed(p.links.state->dispatched);
  auto& memory = *reinterpret_cast<CountMemory*>(count_memory);
  auto* const words = reinterpret_cast<std::uint32_t*>(count_memory + sizeof(CountMemory));
  std::uint32_t* const offsets = words + row_start_words(p.plan);
  F fabric(p.links, p.plan, 0);
  const RowStartsToFill starts = row_starts_at(p.plan, words);
  const GroupsWanted wanted{p.shared_rows, 0, alignment_of(p.plan, p.replayed)};
  RowStartFinder<F> finder(all, p.plan, fabric, routing, wanted, starts, memory.totals);
  if (!finder.find() || !await_routing(p.plan, fabric, all, routing)) return;
  const bool by_source = p.order == RowOrder::by_source;
  if (by_source && !find_source_rows(all, p.plan, fabric, routing, starts, offsets)) return;
  const int count = row_start_words(p.plan) + (by_source ? p.plan.shape.ranks + 1 : 0);
  for (int i = all.thread(); i < count; i += all.size()) p.to_words[i] = words[i];
  if (p.by_counts) tell_given_counts(all, p, routing);
  all.sync();
  if (all.thread() != 0) return;
  const ExcessTokens excess = find_excess(p.plan, p.links, routing);
  const std::int32_t other = p.plan.map.has_token_lists() ? find_other_input(p.plan, p.links.own, routing) : -1;
  if constexpr (F::kHasRemoteRanks)
    if (excess.rank >= 0 || other >= 0) typename F::Reach::Puts(p.links).quiet();
  p.to->excess = excess;
  p.to->other_input = other;
  p.to->is_by_counts = p.by_counts || (p.replayed != nullptr && p.replayed->by_counts != 0);
  store_release(p.to->answered, p.question);
}

}  // namespace ferry::cuda
