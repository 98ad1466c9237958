// How a thread finds a rank that gave its call another handle, in the call words that have come to this rank's memory
// (I22). Nothing waits for these words.
#pragma once

#include "ferry/detail/cuda/state/device_state.h"
#include "ferry/detail/layout/other_handle.h"

namespace ferry::cuda {

// What `rank` said here; nothing where there is no such rank.
__device__ inline CallWords call_words_of(const PeerLinks& links, int rank) {
  if (rank >= links.size) return {};
  const auto word = [&](std::size_t words) {
    return load_relaxed(reinterpret_cast<const SignalWord*>(links.own + words)[rank]);
  };
  return {word(links.dispatching_words), word(links.combining_words)};
}
// For one thread, in a wait that lasts.
__device__ inline OtherHandle find_other_handle(const PeerLinks& links) {
  const CallWords mine = call_words_of(links, links.rank);
  if (mine.dispatching == 0 && mine.combining == 0) return {};
  OtherHandle other;
#pragma unroll 1
  for (int peer = 0; peer < links.size && !other.was_given(); ++peer)
    if (!links.is_masked(peer)) other = compare_calls(peer, call_words_of(links, peer), mine);
  return other;
}

// For a lane of a warp whose rank begins a call: what it and every 32nd rank after it said, against what this rank said
// before and will say.
class CallComparison {
 public:
  // Loads; nothing is looked at yet.
  __device__ CallComparison(const PeerLinks& links, int lane)
      : links_(links), lane_(lane), mine_(call_words_of(links, links.rank)), first_(call_words_of(links, lane)) {}
  __device__ OtherHandle with(const CallWords& next) const {
    OtherHandle other = compare(lane_, first_, next);
#pragma unroll 1
    for (int peer = lane_ + 32; peer < links_.size && !other.was_given(); peer += 32)
      other = compare(peer, call_words_of(links_, peer), next);
    return other;
  }

 private:
  __device__ OtherHandle compare(int peer, const CallWords& theirs, const CallWords& next) const {
    if (peer >= links_.size || links_.is_masked(peer)) return {};
    const OtherHandle other = compare_calls(peer, theirs, mine_);
    return other.was_given() ? other : compare_calls(peer, theirs, next);
  }

  const PeerLinks& links_;
  int lane_;
  CallWords mine_, first_;
};

}  // namespace ferry::cuda
