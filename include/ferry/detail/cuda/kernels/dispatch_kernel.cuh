// The dispatch kernel: which block of the grid routes, sends and receives.
#pragma once

#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/kernels/calls/call_fault.cuh"
#include "ferry/detail/cuda/kernels/calls/handle_check.cuh"
#include "ferry/detail/cuda/kernels/dispatch_block.cuh"
#include "ferry/detail/cuda/kernels/dispatch_rows.cuh"
#include "ferry/detail/cuda/kernels/input_scales.cuh"
#include "ferry/detail/cuda/kernels/step_clock.cuh"
#include "ferry/detail/cuda/steps/few_token_lists.cuh"
#include "ferry/detail/cuda/steps/route.cuh"
#include "ferry/detail/cuda/team/team_ops.cuh"
#include "ferry/detail/cuda/team/warp_lookup.cuh"
#include "ferry/detail/cuda/team/work_queue.cuh"
#include "ferry/detail/protocol/dispatch_send.h"

namespace ferry::cuda {

// I17: a routing block publishes nothing of a handle that is wrong. Message senders may have sent by then, which no
// rank reads: without its tables there is no round. I22: meanwhile the last warp of the first block tells the other
// ranks of the call. The barrier puts that before the tables.
template <DeviceFabric F>
__device__ bool check_replay(const DispatchBlock& b) {
  const HandleCheck& c = b.p.replay;
  if (c.handle == nullptr) return true;
  if (b.index() == 0 && b.all.thread() >= kThreads - 32) tell_call<F>(c, b.p.plan, b.p.links, b.epoch);
  return b.all.all(b.all.thread() >= 32 || is_as_wanted(c, b.p.plan, b.all.thread()) ||
                   check_handle<F>(c, b.p.plan, b.p.links));
}

template <RowOrder kOrder, DeviceFabric F>
__device__ bool route_share(DispatchBlock& b, F& fabric) {
  const int threads = routing_threads(b.p.in.num_tokens * b.p.plan.shape.top_k, b.p.plan.shape.experts);
  const SyncedTeam team(threads, nullptr, b.logical.in_cta);
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
    if constexpr (kOrder == RowOrder::by_source)
      if (ok && share.stores_counts && lists_with_counts<typename F::Reach>(b.p.routing))
        list_few_tokens<typename F::Reach>(team, b.listed(), builder.memory(), b.epoch);
  }
  ok = b.all.all(ok);
  end_step(b.p.step_times, KernelStep::route, b.all);
  return ok;
}

__device__ inline FixedShare sending_teams(const DispatchBlock& b, int team_threads) {
  return teams_of(team_threads, {b.index() - b.p.roles.routing_blocks, b.p.roles.senders});
}

// A team prefetches its first token before the epoch is known. A sending block is the first of its thread block, which
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
  tell_scale(b, fabric);
  end_step(b.p.step_times, KernelStep::send, team);
  if (counted.non_finite != 0) fetch_add_relaxed(b.p.links.state->non_finite, counted.non_finite);
}

// Everything that a block does before it receives. False: an earlier call failed, or a rank did not come.
template <class Maker, RowOrder kOrder, DeviceFabric F>
__device__ bool route_and_send(DispatchBlock& b, F& fabric) {
  bool ok = true;
  if (b.routes()) {
    ok = route_share<kOrder>(b, fabric);
  } else {
    b.await_earlier_kernels();
    if (b.sends()) prefetch_first_token(b);
    ok = b.begin();
    if (!ok && !b.p.sends) tell_of_other_dispatch<F>(b.p.links, Operation::dispatch, b.p.dispatch_call);
  }
  if (b.p.sends && b.index() == 0 && ok)
    ok = b.all.all(b.all.thread() != 0 || advance_epoch<F>(b.p.links, b.epoch, b.logical.count, b.p.dispatch_call));
  if (ok && b.sends()) send_share<Maker>(b, fabric);
  b.all.sync();  // the next role reuses the shared memory of this one
  return ok;
}

template <class Maker, DeviceFabric F, RowOrder kOrder>
__device__ void play_roles(DispatchBlock& b) {
  F fabric(b.p.links, b.p.plan, b.p.plan.map.message_bytes());
  if (!route_and_send<Maker, kOrder>(b, fabric) || !b.receives()) return;
  if constexpr (kOrder == RowOrder::by_source)
    if (!list_share<F>(b)) return;
  lay_out_share<F, kOrder>(b, fabric);
}

// One thread, at the end of a block: the value lies in device memory, and no message waits for this look at it.
__device__ inline void tell_of_bad_scale(const DispatchArgs& in, HostRecord* record) {
  if (in.input_scale_at == nullptr) return;
  const float scale = *in.input_scale_at;
  if (scale > 0.0f && scale <= 3.402823466e38f) return;
  record->bad_scale = scale;
  store_release(record->has_bad_scale, 1u);
}

// `Maker`: a MessageMaker, as Encoder or GivenRows. Only a sending block depends on it. `kOrder`: of the rows;
// by_source the kernel also lists tokens.
template <class Maker, DeviceFabric F, bool kPaired, RowOrder kOrder>
__global__ void __launch_bounds__(kPaired ? 2 * kThreads : kThreads, kPaired ? 1 : 2)
    dispatch_kernel(const __grid_constant__ DispatchParams p) {
  extern __shared__ __align__(128) std::byte shared_memory[];
  const LogicalBlock logical = this_logical_block<kPaired>(p.roles);
  std::byte* const memory = shared_memory + static_cast<std::size_t>(logical.in_cta) * p.block_bytes;
  const SyncedTeam all = SyncedTeam::of_block(logical.in_cta);
  auto& shared = *reinterpret_cast<DispatchMemory*>(memory);
  clear_counts<typename F::Reach>(all, p.plan, shared.messages);
  clear_counts<typename F::Reach>(all, p.plan, shared.bytes);
  DispatchBlock block{p, logical, all, shared, memory + kDispatchSharedBytes};
  play_roles<Maker, F, kOrder>(block);
  const bool tells = p.sends && block.index() == 0 && !shared.round.broken;
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
