// WorkShare: which places of a sequence one group takes. FixedShare is the static share that every backend has.
#pragma once

#include <concepts>

#include "ferry/portable.h"
#include "ferry/thread_group.h"

namespace ferry {

// `index` is the first place. next(g, place) gives the place after `place`. All threads of the group call it.
template <class S, class G>
concept WorkShare = ThreadGroup<G> && requires(S& share, const S& unchanged, const G& g, int place) {
  { unchanged.index } -> std::convertible_to<int>;
  { share.next(g, place) } -> std::same_as<int>;
};

// Share `index` of `count`: every count-th place.
struct FixedShare {
  int index;
  int count;

  template <ThreadGroup G>
  FERRY_HD int next(const G&, int place) const {
    return place + count;
  }
};
static_assert(WorkShare<FixedShare, SerialGroup>);

}  // namespace ferry
