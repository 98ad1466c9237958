// The dispatch kernel: which block of the grid routes, sends and receives.
#pragma once

#include <type_traits>

#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/kernels/call_fault.cuh"
#include "ferry/detail/cuda/kernels/handles/handle_check.cuh"
#include "ferry/detail/cuda/kernels/step_clock.cuh"
#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/steps/route.cuh"
#include "ferry/detail/cuda/steps/routing/peer_counts.cuh"
#include "ferry/detail/cuda/steps/row_starts.cuh"
#include "ferry/detail/cuda/steps/token_lists.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"
#include "ferry/detail/cuda/team/team_ops.cuh"
#include "ferry/detail/cuda/team/warp_lookup.cuh"
#include "ferry/detail/cuda/team/work_queue.cuh"
#include "ferry/detail/protocol/await_routing.h"
#include "ferry/detail/protocol/dispatch_receive.h"
#include "ferry/detail/protocol/dispatch_send.h"
#include "ferry/detail/protocol/padded_rows.h"
#include "ferry/detail/protocol/row_metadata.h"
#include "ferry/detail/protocol/row_room.h"
#include "ferry/detail/protocol/rows_by_source.h"
#include "ferry/detail/protocol/rows_in_place.h"

namespace ferry::cuda {

// Shared memory of a logical block. The memory of its role follows: buffers, counters or row starts.
struct DispatchMemory {
  TokenScratch scratch[kThreads / 32];  // by warp; a sending team uses that of its first warp
  PeerCounts messages;
  PeerCounts bytes;
  int queue_slots[kMostTeams][2];
  WarpTotals totals;
  RoundStart round;
};
inline constexpr std::size_t kDispatchSharedBytes = HeapMap::whole_lines(sizeof(DispatchMemory));

template <bool kPaired>
__device__ LogicalBlock this_logical_block(const DispatchRoles& roles) {
  const int block = static_cast<int>(blockIdx.x);
  const int blocks = static_cast<int>(gridDim.x);
  if constexpr (kPaired) return logical_block_of(block, static_cast<int>(threadIdx.y), blocks, roles.routing_blocks);
  return {block, blocks, 0};
}

// A logical block's view of a dispatch.
struct DispatchBlock {
  const DispatchParams& p;
  const LogicalBlock logical;
  const SyncedTeam& all;
  DispatchMemory& shared;
  std::byte* memory;     // the role's part
  RoundStart seen = {};  // thread 0's
  Epoch epoch = 0;       // from begin() on

  // Must come before the first load of anything that an earlier kernel may have written. Loads the epoch.
  __device__ void await_earlier_kernels() {
    ptx::await_earlier_kernels();
    seen = read_round(all, *p.links.state, p.sends, p.dispatch_call);
  }
  // All threads. False: an earlier call failed, or the kernel only receives, and not of the newest dispatch.
  __device__ bool begin() {
    const RoundStart round = broadcast_round(all, seen, shared.round);
    if (p.roles.triggers_early) ptx::let_next_kernel_launch();
    if (p.sends && all.thread() == 0) arrive(*p.links.state);
    epoch = round.epoch;
    return !round.broken;
  }
  __device__ int index() const { return logical.index; }
  __device__ bool routes() const { return index() < p.roles.routing_blocks; }
  // For routing blocks.
  __device__ RoutingShare routing_share() const {
    const int blocks = p.roles.table_blocks();
    const int first_part = index() * p.routing.parts_per_routing_block;
    const int parts = index() < blocks ? min(p.routing.parts_per_routing_block, p.routing.parts - first_part) : 0;
    return {index(),
            blocks,
            first_part,
            parts,
            p.links.table_parts.log2_part_tokens(p.in.num_tokens),
            index() == (p.roles.counts_apart ? blocks : 0)};
  }
  __device__ bool sends() const { return !routes() && index() < p.roles.routing_blocks + p.roles.senders; }
  __device__ bool receives() const { return p.receives && !sends() && (!routes() || p.roles.routing_blocks_receive); }
  // This block's index among those that receive. Blocks without another role come first.
  __device__ FixedShare among_receivers() const {
    const int busy = p.roles.routing_blocks + p.roles.senders;
    const int idle = logical.count - busy;
    const int count = idle + (p.roles.routing_blocks_receive ? p.roles.routing_blocks : 0);
    return {routes() ? idle + index() : index() - busy, count};
  }
};

// I17: a routing block publishes nothing of a handle that is wrong. Message senders may have sent by then, which no
// rank reads: without its tables there is no round.
template <DeviceFabric F>
__device__ bool check_replay(const DispatchBlock& b) {
  if (b.p.replay.handle == nullptr) return true;
  return b.all.all(b.all.thread() >= 32 || check_handle<F>(b.p.replay, b.p.plan, b.p.links));
}

template <DeviceFabric F>
__device__ bool route_share(DispatchBlock& b, F& fabric) {
  const int threads = routing_threads(b.p.in.num_tokens * b.p.plan.shape.top_k, b.p.plan.shape.experts);
  const SyncedTeam team(threads, nullptr, b.logical.half);
  const RoutingShare share = b.routing_share();
  RoutingBuilder builder(team, b.p, b.epoch, share, b.memory);
  if (team.team() == 0) builder.prepare();
  b.all.sync();
  b.await_earlier_kernels();
  begin_step(b.p.step_times, KernelStep::route, b.all);
  prefetch_header(b.p.replay, b.all.thread());
  if (team.team() == 0) builder.mark_first();
  bool ok = b.begin() && check_replay<F>(b);
  if (ok && team.team() == 0) {
    builder.count();
    ok = builder.learn_from_others(fabric);
    if (ok) builder.publish(fabric, PeerCounter<typename F::Reach>(b.shared.bytes, 0, b.p.stats.bytes));
  }
  ok = b.all.all(ok);
  if (ok && b.p.replay.handle != nullptr && b.index() == 0 && b.all.thread() < 32)
    tell_call<F>(b.p.replay, b.p.plan, b.p.links, b.epoch);
  end_step(b.p.step_times, KernelStep::route, b.all);
  return ok;
}

__device__ inline FixedShare sending_teams(const DispatchBlock& b, int team_threads) {
  return teams_of(team_threads, {b.index() - b.p.roles.routing_blocks, b.p.roles.senders});
}

// A team prefetches its first token before the epoch is known. Sending blocks are half 0 of their thread block, which
// has barriers for all teams (logical_block_of).
__device__ inline void prefetch_first_token(const DispatchBlock& b) {
  const SyncedTeam team(b.p.roles.send_team_threads);
  const int token = sending_teams(b, team.size()).index;
  if (token >= b.p.in.num_tokens) return;
  if (team.thread() == 0)
    ptx::prefetch_to_l1(b.p.in.ids.address(static_cast<std::int64_t>(token) * b.p.plan.shape.top_k));
  prefetch_row(team, b.p.in.tokens + token * b.p.in.row_stride, b.p.in.row_bytes);
}

template <class Maker, DeviceFabric F>
__device__ void send_share(const DispatchBlock& b, F& fabric) {
  begin_step(b.p.step_times, KernelStep::send, b.all);
  const SyncedTeam team(b.p.roles.send_team_threads);
  fabric.use_buffers(b.memory, team);
  if (b.p.roles.stores) fabric.store_messages();
  const FixedShare block = sending_teams(b, team.size());
  using Counter = PeerCounter<typename F::Reach>;
  DispatchCounter<typename F::Reach> counted{0, Counter(b.shared.messages, team.team(), b.p.stats.messages),
                                             Counter(b.shared.bytes, team.team(), b.p.stats.bytes)};
  TokenScratch& scratch = b.shared.scratch[team.team() * team.size() / 32];
  const WorkQueue share(team, block, 1, b.p.in.num_tokens, b.p.links.state->token_counter[b.epoch & 1],
                        b.shared.queue_slots[team.team()]);
  const Step<F, SyncedTeam, WarpLookup, TeamOps> step{b.p.plan, fabric, team, b.epoch, b.epoch};
  send_tokens(step, Maker{}, b.p.in, share, nullptr, scratch, counted);
  end_step(b.p.step_times, KernelStep::send, team);
  if (counted.non_finite != 0) fetch_add_relaxed(b.p.links.state->non_finite, counted.non_finite);
}

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

// Where the rows of a dispatch lie.
struct RowPlaces {
  RowStarts starts;
  SourceRows by_source;  // only of that order
  RowRoom room{};        // of kernels for rows that may have none
};

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

// A team's rows, as far as there is room for them. All messages are awaited (I1), and all rows kept for combine.
template <RowOrder kOrder, ReceiveStep S>
__device__ bool lay_out_fitting(const S& step, FixedShare teams, const RowPlaces& places, const DispatchParams& p,
                                TokenScratch& scratch) {
  const RowStarts& starts = places.starts;
  const auto keep_fitting = [&](LocalRows& found) {
    const auto unit = step.lookup.sync_unit(step.group);
    unit.sync();
    if (unit.thread() == 0) places.room.keep_fitting(step.plan, starts, found);
    unit.sync();
    return found.count != 0;
  };
  if constexpr (kOrder == RowOrder::by_source) {
    const SourceRowLog log{p.arrived, places.by_source};
    return for_each_arrival(step, teams, starts, log, scratch, [&](TokenAt at, LocalRows& found) {
      const std::uint32_t row = places.by_source.row_of(at);
      if (places.room.has(row)) write_row_of_token(step, at, row, starts, p.out, found);
    });
  } else if constexpr (kOrder == RowOrder::in_place) {
    return for_each_arrival(step, teams, starts, RowLog{p.arrived}, scratch, [&](TokenAt at, LocalRows& to) {
      if (keep_fitting(to)) name_slot(step, at, p.out, to);
    });
  } else {
    return lay_out_shared_rows(step, p.in.shared(), teams, starts, p.out, scratch) &&
           for_each_arrival(step, teams, starts, RowLog{p.arrived}, scratch, [&](TokenAt at, LocalRows& to) {
             if (keep_fitting(to)) write_rows(step, at, starts, p.out, to);
           });
  }
}

// A team's rows.
template <RowOrder kOrder, ReceiveStep S>
__device__ bool lay_out_team(const S& step, FixedShare teams, const RowPlaces& places, const DispatchParams& p,
                             TokenScratch& scratch) {
  const RowStarts& starts = places.starts;
  if constexpr (kOrder == RowOrder::by_source)
    return lay_out_by_source(step, teams, starts, places.by_source, p.out, SourceRowLog{p.arrived, places.by_source},
                             scratch);
  else if constexpr (kOrder == RowOrder::in_place)
    return lay_out_in_place(step, teams, starts, p.out, RowLog{p.arrived}, scratch);
  else
    return lay_out_shared_rows(step, p.in.shared(), teams, starts, p.out, scratch) &&
           lay_out_rows(step, teams, starts, p.out, RowLog{p.arrived}, scratch);
}

template <RowOrder kOrder>
using OpsOf = std::conditional_t<kOrder == RowOrder::padded, PaddedOps<TeamOps>, TeamOps>;
template <RowOrder kOrder>
using LookupOf = std::conditional_t<kOrder == RowOrder::by_source, SourceLookup, WarpLookup>;

// `kMayOverflow`: the outputs may not have room for all rows.
template <DeviceFabric F, RowOrder kOrder = RowOrder::by_expert, bool kMayOverflow = false>
__device__ bool lay_out_share(const DispatchBlock& b, F& fabric) {
  const DispatchParams& p = b.p;
  begin_step(p.step_times, KernelStep::wait, b.all);
  const RowStartsToFill found = row_starts_at(p.plan, reinterpret_cast<std::uint32_t*>(b.memory));
  RowPlaces places{found, {}};
  const RowStarts& starts = places.starts;
  const FixedShare block = b.among_receivers();
  const WarpwiseTeam team(p.roles.receive_team_threads, block.index);
  const FixedShare teams{teams_of(team.size(), block).index, p.roles.receive_teams};
  prefetch_first_arrival(p.plan, fabric, b.epoch, teams);
  const GroupsWanted wanted{p.in.shared_end - p.in.shared_begin, p.out.expert_stride};
  RowStartFinder<F, kOrder == RowOrder::padded> finder(b.all, p.plan, fabric, b.epoch, wanted, found, b.shared.totals);
  if (!finder.find()) return false;
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
  const auto lay_out = [&] {
    if constexpr (kMayOverflow)
      return lay_out_fitting<kOrder>(step, teams, places, p, scratch);
    else
      return lay_out_team<kOrder>(step, teams, places, p, scratch);
  };
  const bool ok = teams.index >= teams.count || lay_out();  // or a team without tokens (teams_serving_all_ranks)
  // Counts prove only that they have arrived. One block awaits `routed` of every source for all blocks: it proves that
  // the round has begun everywhere (I1, I8). It is one of the last blocks, which have the fewest tokens.
  const bool began = block.index != max(0, block.count - 2) || await_routing(p.plan, fabric, b.all, b.epoch);
  ptx::let_next_kernel_launch();
  end_step_together(p.step_times, KernelStep::lay_out, b.all);
  return ok && began;
}

// Everything that a block does before it receives. False: an earlier call failed, or a rank did not come.
template <class Maker, DeviceFabric F>
__device__ bool route_and_send(DispatchBlock& b, F& fabric) {
  bool ok = true;
  if (b.routes()) {
    ok = route_share(b, fabric);
  } else {
    b.await_earlier_kernels();
    if (b.sends()) prefetch_first_token(b);
    ok = b.begin();
    if (!ok && !b.p.sends) tell_of_other_dispatch<F>(b.p.links, Operation::dispatch, b.p.dispatch_call);
  }
  if (b.p.sends && b.index() == 0 && ok)
    ok = b.all.all(b.all.thread() != 0 ||
                   advance_epoch(*b.p.links.state, fabric, b.epoch, b.logical.count, b.p.dispatch_call));
  if (ok && b.sends()) send_share<Maker>(b, fabric);
  b.all.sync();  // the next role reuses the shared memory of this one
  return ok;
}

template <class Maker, DeviceFabric F>
__device__ void play_roles(DispatchBlock& b) {
  F fabric(b.p.links, b.p.plan, b.p.plan.map.message_bytes());
  if (route_and_send<Maker>(b, fabric) && b.receives()) lay_out_share(b, fabric);
}

// One thread, at the end of a block: the value lies in device memory, and no message waits for this look at it.
__device__ inline void tell_of_bad_scale(const DispatchArgs& in, HostRecord* record) {
  if (in.input_scale_at == nullptr) return;
  const float scale = *in.input_scale_at;
  if (scale > 0.0f && scale <= 3.402823466e38f) return;
  record->bad_scale = scale;
  store_release(record->has_bad_scale, 1u);
}

// `Maker`: a MessageMaker, as Encoder or GivenRows. Only a sending block depends on it.
template <class Maker, DeviceFabric F, bool kPaired>
__global__ void __launch_bounds__(kPaired ? 2 * kThreads : kThreads, kPaired ? 1 : 2)
    dispatch_kernel(const __grid_constant__ DispatchParams p) {
  extern __shared__ __align__(128) std::byte shared_memory[];
  const LogicalBlock logical = this_logical_block<kPaired>(p.roles);
  std::byte* const memory = shared_memory + static_cast<std::size_t>(logical.half) * p.block_bytes;
  const SyncedTeam all = SyncedTeam::of_block(logical.half);
  auto& shared = *reinterpret_cast<DispatchMemory*>(memory);
  clear_counts<typename F::Reach>(all, p.plan, shared.messages);
  clear_counts<typename F::Reach>(all, p.plan, shared.bytes);
  DispatchBlock block{p, logical, all, shared, memory + kDispatchSharedBytes};
  play_roles<Maker, F>(block);
  const bool tells = p.sends && block.index() == 0;
  const bool waits = tells && all.thread() < p.routing.parts;
  const bool routed =
      all.all(!waits || typename F::Waits(p.links).wait_for_own_part(p.plan, all.thread(), block.epoch));
  if (routed && tells && all.thread() == 0) {
    tell_of_bad_ids(p.routing, block.epoch);
    tell_of_bad_scale(p.in, p.routing.record);
  }
  if (!block.routes() && !block.sends()) return;
  add_counts<typename F::Reach>(all, p.plan, shared.messages, p.stats.messages);
  add_counts<typename F::Reach>(all, p.plan, shared.bytes, p.stats.bytes);
}

}  // namespace ferry::cuda
