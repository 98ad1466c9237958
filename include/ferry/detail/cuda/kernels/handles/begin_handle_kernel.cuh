// A kernel of one warp before a combine that is given a handle, and before a dispatch whose own kernel does not check
// its handle (DispatchParams::replay). It checks what the handle's header says, tells all ranks whose routing it holds,
// and compares what they said (I22). Before a combine that may not follow its dispatch at once, or chooses its
// reduction, it also takes the number of the combine, and waits until every rank has summed the combines before (I8).
#pragma once

#include <cstdint>

#include "ferry/detail/cuda/kernels/calls/handle_check.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"

namespace ferry::cuda {

inline constexpr int kBeginHandleThreads = 32;

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

// Behind a dispatch that was refused: whether this is the second half of a combine whose first half came before that.
// The number of a combine that begins here is forgotten, so that both its halves do nothing. A warp calls it.
__device__ inline bool is_second_half(const HandleCallParams& p, DeviceState& state, int lane) {
  if (p.number == CombineNumber::of_dispatch)
    return p.check.operation == Operation::combine && load_relaxed(state.extra_result) != 0;
  if (lane == 0) store_relaxed(state.extra_result, Epoch{0});
  return false;
}

// I22: what this rank says of the call that begins; nothing where ranks cannot differ, or of a second half.
__device__ inline CallWords words_of_call(const HandleCallParams& p, const CallNumbers& now, Epoch routing) {
  const HandleCheck& c = p.check;
  if (c.handle == nullptr && !c.chooses) return {};
  if (c.operation == Operation::dispatch) return words_of_call(c, now.dispatched + 1, routing);
  if (p.number == CombineNumber::of_dispatch) return {};
  return words_of_call(c, now.dispatched + now.extra + 1, routing);
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
  const HandleCheck& c = p.check;
  HandleHeader header;
  bool older_mask = true;
  if (c.handle != nullptr) {
    header = *kept_routing_at(p.plan, c.handle).header;
    older_mask = has_older_mask(c, p.plan, lane);
  }
  const std::uint32_t failed = load_relaxed(state.failed);
  const Epoch refused = load_relaxed(state.refused);
  const CallNumbers now = {load_relaxed(state.dispatched), load_relaxed(state.extra), load_relaxed(state.extra_after)};
  const CallComparison calls(p.links, lane);
  // All lanes have loaded before one of them ends the exchange below.
  const bool stops = failed != 0 || (refused == now.dispatched && !is_second_half(p, state, lane));
  if (__any_sync(kAllLanes, stops) != 0) return;
  if (c.handle != nullptr && !is_good_handle<F>(c, p.plan, p.links, header, older_mask)) return;
  const CallWords next = words_of_call(p, now, c.handle != nullptr ? header.routing : now.dispatched);
  if (__all_sync(kAllLanes, !F::Waits::end_for_other_handle(p.links, calls.with(next))) == 0) return;
  say_call<F>(p.plan, p.links, next, lane);
  if (p.number == CombineNumber::of_dispatch) return;
  Epoch number = lane == 0 ? take_combine_number(state, now, p.number) : 0;
  number = __shfl_sync(kAllLanes, number, 0);
  if (number != 0) await_summed<F>(p, number, lane);
}

}  // namespace ferry::cuda
