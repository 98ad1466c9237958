// I26: each rank says by which input scale it encoded, where the format uses one, and a later dispatch compares. Nobody
// waits for it.
#pragma once

#include "ferry/detail/cuda/kernels/dispatch_block.cuh"
#include "ferry/detail/cuda/team/ptx.cuh"
#include "ferry/detail/layout/scale_word.h"

namespace ferry::cuda {

template <RankReach Reach>
__device__ __noinline__ void say_scale(const DispatchParams& p, int thread, Epoch dispatch, float scale) {
  const Reach reach(p.links);
  const std::size_t at = p.plan.map.input_scale(dispatch, p.plan.rank);
  for (int peer = thread; peer < p.plan.shape.ranks; peer += kThreads)
    if (!p.plan.is_masked(peer)) reach.signal_without_order(peer, at, scale_word(dispatch, scale));
}
// The threads of one sending block, when its messages have left. It does not receive.
template <class F>
__device__ void tell_scale(const DispatchBlock& b, const F& fabric) {
  if (!b.p.tells_scale || b.index() != b.p.roles.routing_blocks) return;
  say_scale<typename F::Reach>(b.p, b.all.thread(), b.epoch, fabric.hooks().input_scale(b.p.in));
}

// A warp. All loads for 32 ranks are on their way before one of them is looked at.
static __device__ __noinline__ void find_other_scale(const DispatchParams& p, Epoch dispatch) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int ranks = p.plan.shape.ranks;
  const auto said_by = [&](int rank) {
    return load_relaxed(*reinterpret_cast<const SignalWord*>(p.links.own + p.plan.map.input_scale(dispatch, rank)));
  };
  for (int first = 0; first < ranks; first += 32) {
    const int peer = first + lane < ranks ? first + lane : p.plan.rank;
    const Epoch mine = said_by(p.plan.rank), theirs = said_by(peer);
    const bool is_other = dispatch_of_scale(mine) == static_cast<std::uint32_t>(dispatch) && !p.plan.is_masked(peer) &&
                          is_of_other_scale(theirs, mine);
    const unsigned others = __ballot_sync(kAllLanes, is_other);
    if (others == 0) continue;
    if (lane == __ffs(static_cast<int>(others)) - 1) {
      p.links.record->other_scale = OtherScale::of(peer, theirs, mine);
      store_release(p.links.record->has_other_scale, 1u);
    }
    return;
  }
}
// After await_routing: every rank has ended the dispatch before this one, so what it said in that is here. Always true.
__device__ inline bool compare_scales(const DispatchBlock& b) {
  if (b.p.compares_scales && b.all.thread() < 32) find_other_scale(b.p, b.epoch - 1);
  return true;
}

}  // namespace ferry::cuda
