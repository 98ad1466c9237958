// A kernel of one warp before a call that is given a handle, so that the kernels that carry tokens stay as they are. It
// checks what the handle's header says, tells all ranks whose routing it holds, and compares what they said (I22).
// Before a combine that may not follow its dispatch at once it also takes the number of the combine, and waits until
// every rank has summed the combines before (I8).
#pragma once

#include <cstdint>

#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/fabric/other_handles.cuh"
#include "ferry/detail/cuda/kernels/call_fault.cuh"
#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/team/ptx_launch.cuh"
#include "ferry/detail/cuda/team/team_group.cuh"
#include "ferry/detail/layout/call_word.h"
#include "ferry/detail/protocol/contracts/handle.h"

namespace ferry::cuda {

inline constexpr int kBeginHandleThreads = 32;

// A combine takes the rows of any order that its exchange may have: their numbers are in the handle. by_source is not
// among them where every row is a result. Weights that go home have another shape there.
__device__ inline bool may_be_combined(const HandleCallParams& p, const HandleHeader& h) {
  constexpr auto kBySource = static_cast<std::int32_t>(RowOrder::by_source);
  if (p.wants_order && (h.order == kBySource) != (p.wanted.order == kBySource)) return false;
  if (h.order == kBySource) return p.plan.map.has_token_lists();
  return h.order >= 0 && h.order < kRowOrders;
}

// I17, for handles in device memory. `h` says what the handle is.
__device__ inline HandleFault find_handle_fault(const HandleCallParams& p, const HandleHeader& h) {
  const HandleHeader& w = p.wanted;
  if (h.magic != w.magic)
    return {HandleField::first_word, static_cast<std::int64_t>(h.magic), static_cast<std::int64_t>(w.magic)};
  HandleFault fault;
  const auto compare = [&](HandleField field, std::int32_t value, std::int32_t wanted) {
    if (fault.field == HandleField::none && value != wanted) fault = {field, value, wanted};
  };
  for_each_shape_field([&](HandleField field, const char*, std::int32_t HandleHeader::*member) {
    if (field == HandleField::order && p.operation == Operation::combine && may_be_combined(p, h)) return;
    compare(field, h.*member, w.*member);
  });
  if (w.num_tokens >= 0) compare(HandleField::num_tokens, h.num_tokens, w.num_tokens);
  const auto order = static_cast<RowOrder>(w.order);
  const bool aligns_rows = order == RowOrder::by_expert || order == RowOrder::in_place;
  if (p.operation == Operation::dispatch && aligns_rows) compare(HandleField::alignment, h.alignment, w.alignment);
  if (!p.may_lack_rows && h.row_room != 0 && fault.field == HandleField::none)
    return {HandleField::row_room, std::int64_t{h.row_room} - 1, 0};
  if (p.operation == Operation::dispatch && !p.may_be_by_counts) compare(HandleField::by_counts, h.by_counts, 0);
  if (p.gives_weights) {
    compare(HandleField::weights_by_source, h.order == static_cast<std::int32_t>(RowOrder::by_source) ? 1 : 0, 0);
    compare(HandleField::weights, h.has_weights, 0);
  }
  return fault;
}

// Whether the mask of this call has all of the mask of the handle's dispatch, for the peers of this lane. It may have
// grown since (I11).
__device__ inline bool has_older_mask(const HandleCallParams& p, int lane) {
  const std::uint8_t* masked = kept_routing_at(p.plan, p.handle).masked;
  bool older = true;
  for (int peer = lane; peer < p.plan.shape.ranks; peer += 32)
    older = older && (masked[peer] == 0 || p.plan.is_masked(peer));
  return older;
}

// Words that numbers of calls follow from.
struct CallNumbers {
  Epoch dispatched;
  Epoch extra;
  Epoch extra_after;
};

// I13: earlier kernels have ended, and later ones begin when this one has. Returns the number of a combine that has one
// of its own; 0 where it has that of its dispatch, and waits for nothing.
__device__ inline Epoch take_combine_number(DeviceState& state, const CallNumbers& now, CombineNumber wanted) {
  if (wanted == CombineNumber::found && now.extra_after != now.dispatched) {
    store_relaxed(state.extra_result, now.dispatched + now.extra);
    return 0;
  }
  const Epoch number = now.dispatched + now.extra + 1;
  store_relaxed(state.extra, now.extra + 1);
  store_relaxed(state.extra_after, now.dispatched);
  store_relaxed(state.extra_result, number);
  store_relaxed(state.result_counter, 0u);
  return number;
}

// I22: what this rank says of the call that begins; nothing where it has no handle, or is the second half of one.
__device__ inline CallWords words_of_call(const HandleCallParams& p, const CallNumbers& now, Epoch routing) {
  if (p.handle == nullptr) return {};
  const std::uint32_t mark = routing_mark(routing, true);
  if (p.operation == Operation::dispatch) return {call_word(now.dispatched + 1, mark), 0};
  if (p.number == CombineNumber::of_dispatch) return {};
  return {0, call_word(now.dispatched + now.extra + 1, mark)};
}
// Nothing waits for the word, so it needs no order. A warp calls it.
template <DeviceFabric F>
__device__ void say_call(const HandleCallParams& p, const CallWords& words, int lane) {
  const HeapMap& map = p.plan.map;
  const Epoch word = words.dispatching | words.combining;  // one of the two is 0
  if (word == 0) return;
  const std::size_t at = words.combining == 0 ? map.dispatching(p.plan.rank) : map.combining(p.plan.rank);
  const typename F::Reach reach(p.links);
  for (int peer = lane; peer < p.plan.shape.ranks; peer += 32)
    if (!p.plan.is_masked(peer)) reach.signal_without_order(peer, at, word);
}

// I6, I8: tells all ranks that this one has read all results of the combines before, and waits until they say so, too.
// Its earlier kernels have ended, so it has read them, and what it had put in a combine that was given up has landed
// (complete_puts). The word says nothing of puts, so it needs no order. A warp calls it.
template <DeviceFabric F>
__device__ void await_summed(const HandleCallParams& p, Epoch number, int lane) {
  const HeapMap& map = p.plan.map;
  const typename F::Reach reach(p.links);
  for (int peer = lane; peer < p.plan.shape.ranks; peer += 32)
    if (!p.plan.is_masked(peer)) reach.signal_without_order(peer, map.summed(p.plan.rank), number);
  if (!p.waits) return;
  const typename F::Waits waits(p.links);
  waits.wait_for_each(
      SyncedTeam(kBeginHandleThreads), p.plan.shape.ranks, [&](int peer) { return map.summed(peer); }, number,
      [](int peer) {
        return WaitSite{Operation::combine, Phase::summed, peer, -1};
      },
      p.plan.masked);
}

// The next kernel may be launched at once: it waits for the end of this one, and this one for the end of those before.
// Not where this kernel waits for other ranks: the blocks of the next one would take room meanwhile (I21). All loads
// are on their way before one of them is looked at, as this kernel takes little more than the time of a load.
template <DeviceFabric F>
__global__ void __launch_bounds__(kBeginHandleThreads) begin_handle_kernel(const __grid_constant__ HandleCallParams p) {
  const int lane = static_cast<int>(threadIdx.x);
  if (!p.waits) ptx::let_next_kernel_launch();
  ptx::await_earlier_kernels();
  DeviceState& state = *p.links.state;
  HandleHeader header;
  bool older_mask = true;
  if (p.handle != nullptr) {
    header = *kept_routing_at(p.plan, p.handle).header;
    older_mask = has_older_mask(p, lane);
  }
  const std::uint32_t failed = load_relaxed(state.failed);
  const CallNumbers now = {load_relaxed(state.dispatched), load_relaxed(state.extra), load_relaxed(state.extra_after)};
  const CallComparison calls(p.links, lane);
  if (failed != 0) return;
  if (p.handle != nullptr) {
    HandleFault fault = find_handle_fault(p, header);
    if (__all_sync(kAllLanes, older_mask) == 0 && fault.field == HandleField::none) fault = {HandleField::mask, 0, 1};
    if (fault.field != HandleField::none) {
      if (lane == 0) end_for_fault<F>(p.links, p.operation, fault);
      return;
    }
  }
  const CallWords next = words_of_call(p, now, header.routing);
  if (__all_sync(kAllLanes, !F::Waits::end_for_other_handle(p.links, calls.with(next))) == 0) return;
  say_call<F>(p, next, lane);
  if (p.number == CombineNumber::of_dispatch) return;
  Epoch number = lane == 0 ? take_combine_number(state, now, p.number) : 0;
  number = __shfl_sync(kAllLanes, number, 0);
  if (number != 0) await_summed<F>(p, number, lane);
}

}  // namespace ferry::cuda
