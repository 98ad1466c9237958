// ExpertSplit: which rank owns which expert, as in ferry/shape.h, with precomputed divisions.
#pragma once

#include "ferry/detail/base/divider.h"
#include "ferry/detail/layout/routing.h"
#include "ferry/shape.h"

namespace ferry {

class ExpertSplit {
 public:
  constexpr ExpertSplit() = default;
  explicit constexpr ExpertSplit(const Shape& shape)
      : fewest_(shape.experts / shape.ranks),
        larger_ranks_(shape.experts % shape.ranks),
        by_most_(fewest_ + 1),
        by_fewest_(fewest_) {}

  FERRY_HD constexpr ExpertRange experts_of(int rank) const {
    const bool is_larger = rank < larger_ranks_;
    return {rank * fewest_ + (is_larger ? rank : larger_ranks_), fewest_ + (is_larger ? 1 : 0)};
  }
  FERRY_HD constexpr int owner_of(int expert) const {
    const int in_larger = larger_ranks_ * (fewest_ + 1);
    return expert < in_larger ? by_most_.quotient(expert) : larger_ranks_ + by_fewest_.quotient(expert - in_larger);
  }

 private:
  int fewest_ = 1;        // experts of a rank
  int larger_ranks_ = 0;  // how many ranks have one expert more
  Divider by_most_;
  Divider by_fewest_;
};

}  // namespace ferry
