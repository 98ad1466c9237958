// What a receiving block of a dispatch does: it waits for the counts and messages of all ranks, and lays out their
// rows.
#pragma once

#include <type_traits>

#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/kernels/calls/call_fault.cuh"
#include "ferry/detail/cuda/kernels/dispatch_block.cuh"
#include "ferry/detail/cuda/kernels/input_scales.cuh"
#include "ferry/detail/cuda/kernels/step_clock.cuh"
#include "ferry/detail/cuda/steps/few_token_lists.cuh"
#include "ferry/detail/cuda/steps/row_starts.cuh"
#include "ferry/detail/cuda/steps/token_lists.cuh"
#include "ferry/detail/cuda/team/team_ops.cuh"
#include "ferry/detail/cuda/team/warp_lookup.cuh"
#include "ferry/detail/protocol/await_routing.h"
#include "ferry/detail/protocol/contracts/row_places.h"
#include "ferry/detail/protocol/dispatch_receive.h"
#include "ferry/detail/protocol/padded_rows.h"
#include "ferry/detail/protocol/row_metadata.h"
#include "ferry/detail/protocol/rows_by_source.h"
#include "ferry/detail/protocol/rows_in_place.h"

namespace ferry::cuda {

template <DeviceFabric F>
__device__ void count_received(const DispatchParams& p, const SyncedTeam& g, const F& fabric, Epoch epoch) {
  const int experts = p.plan.local_experts();
  const RoundTag& tag = fabric.links().tag;
  for (int source = 0; source < p.plan.shape.ranks; ++source) {
    if (p.plan.is_masked(source)) continue;
    const auto* counts =
        reinterpret_cast<const SystemWord<std::uint32_t>*>(fabric.local(p.plan.map.counts(epoch, source)));
    for (int i = g.thread(); i < experts; i += g.size())
      if (const std::uint64_t count = tag.value(load_relaxed(counts[i])); count != 0)
        fetch_add_relaxed(p.stats.received[source * experts + i], count);
  }
}

// Prefetches what a warp reads first after it has found the row starts: the lines, and their addresses.
template <DeviceFabric F>
__device__ void prefetch_first_arrival(const Plan& plan, const F& fabric, Epoch epoch, FixedShare teams) {
  const TokenSequence tokens(plan, plan.shape.max_tokens, plan.rank);
  if (teams.index >= tokens.length) return;
  const TokenAt at = tokens.at(teams.index);
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (lane == 0) ptx::prefetch_to_l2(reinterpret_cast<const std::byte*>(entries_of(plan, fabric, epoch, at)));
  if (lane == 1) ptx::prefetch_to_l2(fabric.local(plan.map.arrived(epoch, at.source, at.token)));
  if (lane == 2) ptx::prefetch_to_l2(fabric.local(plan.map.message(epoch, at.source, at.token)));
}

// This block's index among the receiving blocks that have no token, counted from the last block, which has the fewest
// tokens. All receiving blocks count where those without a token are fewer than a quarter, or none. An index past the
// count: this block has a token.
__device__ inline FixedShare without_tokens(const DispatchParams& p, const RowStarts& starts, int team_threads,
                                            const FixedShare& receivers) {
  const int own = p.in.shared_end - p.in.shared_begin;
  const int places = max(own, p.plan.shape.ranks * static_cast<int>(starts.tokens[p.plan.shape.ranks]));
  const int busy = places * max(1, team_threads / kThreads);
  return {receivers.count - 1 - receivers.index,
          busy > receivers.count - max(1, receivers.count / 4) ? receivers.count : receivers.count - busy};
}

// Metadata follows only from the counts, so it is written before the first token, while messages are in flight.
template <RowOrder kOrder, DeviceFabric F>
__device__ void write_metadata(const DispatchBlock& b, const F& fabric, const RowPlaces& places, FixedShare block) {
  const RowStarts& starts = places.starts;
  if (block.index >= block.count) return;
  if constexpr (kOrder == RowOrder::padded)
    write_padded_metadata(b.p.plan, b.all, TeamOps{}, block, starts, b.p.out);
  else if constexpr (kOrder == RowOrder::by_source)
    write_source_metadata(b.p.plan, b.all, TeamOps{}, block, starts, places.by_source, b.p.out);
  else
    write_row_metadata(b.p.plan, b.all, TeamOps{}, block, starts, b.p.out);
  if constexpr (kOrder == RowOrder::in_place) mark_padding_of_gather(b.p.plan, b.all, block, starts, b.p.out);
  if (block.index != 0) return;
  save_row_starts(b.all, b.p.plan, starts, b.p.arrived.starts);
  count_received(b.p, b.all, fabric, b.epoch);
}

// The same where the outputs may not have room for all rows: of groups that end past it, what is in it is marked. Row
// starts and offsets that are kept are the true ones. `words`: shared memory for other starts, and for first rows of
// sources behind them.
template <RowOrder kOrder, DeviceFabric F>
__device__ void write_fitting_metadata(const DispatchBlock& b, const F& fabric, const RowPlaces& places,
                                       FixedShare block, std::uint32_t* words) {
  if (block.index >= block.count) return;
  const Plan& plan = b.p.plan;
  const int groups = plan.groups(), sources = plan.shape.ranks, count = row_start_words(plan);
  const RowRoom& room = places.room;
  const RowStartsToFill to = row_starts_at(plan, words);
  RowPlaces fitting{to, places.by_source, room};
  fitting.by_source.offsets = words + count;
  for (int i = b.all.thread(); i < count; i += b.all.size()) words[i] = places.starts.of_source[i];
  b.all.sync();
  for (int group = b.all.thread(); group < groups; group += b.all.size()) room.fit(group, places.starts, to);
  if (b.all.thread() == 0) to.group[groups] = min(places.starts.group[groups], room.rows);
  for (int i = b.all.thread(); kOrder == RowOrder::by_source && i <= sources; i += b.all.size())
    words[count + i] = min(places.by_source.offsets[i], room.rows);
  b.all.sync();
  write_metadata<kOrder>(b, fabric, fitting, block);
  if (block.index != 0) return;
  b.all.sync();
  save_row_starts(b.all, plan, places.starts, b.p.arrived.starts);
  for (int i = b.all.thread(); kOrder == RowOrder::by_source && i <= sources; i += b.all.size())
    b.p.out.source_offsets[i] = places.by_source.offsets[i];
  const bool has_offsets = kOrder != RowOrder::by_source && b.p.out.row_offsets != nullptr;
  for (int i = b.all.thread(); has_offsets && i <= groups; i += b.all.size())
    b.p.out.row_offsets[i] = places.starts.group[i];
}

// A team's rows.
template <RowOrder kOrder, bool kMayOverflow, ReceiveStep S>
__device__ bool lay_out_team(const S& step, FixedShare teams, const RowPlaces& places, const DispatchParams& p,
                             TokenScratch& scratch) {
  if constexpr (kOrder == RowOrder::by_source)
    return lay_out_by_source<kMayOverflow>(step, teams, places, p.out, SourceRowLog{p.arrived, places.by_source},
                                           scratch);
  else if constexpr (kOrder == RowOrder::in_place)
    return lay_out_in_place<kMayOverflow>(step, teams, places, p.out, RowLog{p.arrived}, scratch);
  else
    return lay_out_shared_rows(step, p.in.shared(), teams, places.starts, p.out, scratch) &&
           lay_out_rows<kMayOverflow>(step, teams, places, p.out, RowLog{p.arrived}, scratch);
}

template <RowOrder kOrder>
using OpsOf = std::conditional_t<kOrder == RowOrder::padded, PaddedOps<TeamOps>, TeamOps>;
template <RowOrder kOrder>
using LookupOf = std::conditional_t<kOrder == RowOrder::by_source, SourceLookup, WarpLookup>;

// After await_routing: where some rank has too many tokens, nothing that follows this dispatch is a call any more
// (refused_dispatch.cuh). The dispatch itself goes on: other ranks wait for what this one sends. Always true.
__device__ inline bool refuse_excess(const DispatchBlock& b, const RowStarts& starts) {
  if (b.all.thread() != 0 || starts.tokens[b.p.plan.shape.ranks] != excess_mark(b.p.plan.shape)) return true;
  store_relaxed(b.p.links.state->refused, b.epoch);
  store_release(b.p.links.record->refused, b.epoch);
  return true;
}

// I17: the host checked the room for rows of the alignment of its format, and those of the handle may be of a larger
// one.
template <DeviceFabric F>
__device__ bool has_room_for_replay(const DispatchBlock& b, const RowStarts& starts) {
  const std::int64_t rows = starts.group[b.p.plan.groups()];
  if (rows <= b.p.out.row_capacity) return true;
  if (b.all.thread() == 0)
    end_for_fault<F>(b.p.links, Operation::dispatch, {HandleField::aligned_rows, rows, b.p.out.row_capacity});
  return false;
}

// `kMayOverflow`: the outputs may not have room for all rows.
template <DeviceFabric F, RowOrder kOrder = RowOrder::by_expert, bool kMayOverflow = false>
__device__ bool lay_out_share(const DispatchBlock& b, F& fabric) {
  const DispatchParams& p = b.p;
  begin_step(p.step_times, KernelStep::wait, b.all);
  const RowStartsToFill found = row_starts_at(p.plan, reinterpret_cast<std::uint32_t*>(b.memory));
  RowPlaces places{found};
  const RowStarts& starts = places.starts;
  const FixedShare block = b.among_receivers();
  const WarpwiseTeam team(p.roles.receive_team_threads, block.index);
  const FixedShare teams{teams_of(team.size(), block).index, p.roles.receive_teams};
  prefetch_first_arrival(p.plan, fabric, b.epoch, teams);
  const GroupsWanted wanted{p.in.shared_end - p.in.shared_begin, p.out.expert_stride,
                            alignment_of(p.plan, p.aligned_by)};
  RowStartFinder<F, kOrder == RowOrder::padded> finder(b.all, p.plan, fabric, b.epoch, wanted, found, b.shared.totals);
  if (!finder.find()) return false;
  if constexpr (!kMayOverflow)
    if (p.aligned_by != nullptr && !has_room_for_replay<F>(b, starts)) return false;
  if constexpr (kOrder == RowOrder::by_source) {
    std::uint32_t* offsets = reinterpret_cast<std::uint32_t*>(b.memory) + row_start_words(p.plan);
    if (!find_source_rows(b.all, p.plan, fabric, b.epoch, found, offsets)) return false;
    places.by_source = source_rows_at(p.plan, fabric, b.epoch, offsets);
  }
  change_step(p.step_times, KernelStep::wait, KernelStep::lay_out, b.all);
  const FixedShare idle = without_tokens(p, starts, team.size(), block);
  if constexpr (kMayOverflow) {
    places.room = room_of(p.out);
    write_fitting_metadata<kOrder>(b, fabric, places, idle, found.of_source + place_words(p.plan));
  } else {
    write_metadata<kOrder>(b, fabric, places, idle);
  }
  TokenScratch& scratch = b.shared.scratch[threadIdx.x / 32];
  const Step<F, WarpwiseTeam, LookupOf<kOrder>, OpsOf<kOrder>> step{p.plan, fabric, team, b.epoch, b.epoch};
  const auto lay_out = [&] { return lay_out_team<kOrder, kMayOverflow>(step, teams, places, p, scratch); };
  const bool ok = teams.index >= teams.count || lay_out();  // or a team without tokens (teams_serving_all_ranks)
  // Counts prove only that they have arrived. One block awaits `routed` of every source for all blocks: it proves that
  // the round has begun everywhere (I1, I8). It is one of the last blocks, which have the fewest tokens.
  const bool began = block.index != max(0, block.count - 2) ||
                     (await_routing(p.plan, fabric, b.all, b.epoch) && refuse_excess(b, starts) && compare_scales(b));
  ptx::let_next_kernel_launch();
  end_step_together(p.step_times, KernelStep::lay_out, b.all);
  return ok && began;
}

// I23: the first receiving blocks tell each rank which tokens of this one come there, once this rank's own table is
// complete. Of few tokens a routing block has done it. False: a routing block did not come.
template <DeviceFabric F>
__device__ bool list_share(const DispatchBlock& b) {
  const DispatchParams& p = b.p;
  const FixedShare block = b.among_receivers();
  if (lists_with_counts<typename F::Reach>(p.routing) || block.index >= p.plan.shape.ranks) return true;
  const bool waits = b.all.thread() < p.routing.parts;
  if (!b.all.all(!waits || typename F::Waits(p.links).wait_for_own_part(p.plan, b.all.thread(), b.epoch))) return false;
  list_tokens<typename F::Reach>(b.all, b.listed(), b.epoch, block, *reinterpret_cast<TokenListMemory*>(b.memory));
  return true;
}

}  // namespace ferry::cuda
