// WorkShare: which positions of a sequence one group takes. FixedShare is the static share that every backend has.
#pragma once

#include <concepts>

#include "ferry/formats/portable.h"
#include "ferry/formats/thread_group.h"

namespace ferry {

// `index` is the first position. next(g, position) gives the position after `position`. All threads of the group call
// it.
template <class S, class G>
concept WorkShare = ThreadGroup<G> && requires(S& share, const S& unchanged, const G& g, int position) {
  { unchanged.index } -> std::convertible_to<int>;
  { share.next(g, position) } -> std::same_as<int>;
};

// Share `index` of `count`: every count-th position.
struct FixedShare {
  int index;
  int count;

  template <ThreadGroup G>
  FERRY_HD int next(const G&, int position) const {
    return position + count;
  }
};
static_assert(WorkShare<FixedShare, SerialGroup>);

}  // namespace ferry
