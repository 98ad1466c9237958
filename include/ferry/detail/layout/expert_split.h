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
      : least_(shape.experts / shape.ranks),
        ranks_with_more_(shape.experts % shape.ranks),
        by_more_(least_ + 1),
        by_least_(least_) {}

  FERRY_HD constexpr ExpertRange experts_of(int rank) const {
    const bool more = rank < ranks_with_more_;
    return {rank * least_ + (more ? rank : ranks_with_more_), least_ + (more ? 1 : 0)};
  }
  FERRY_HD constexpr int owner_of(int expert) const {
    const int of_more = ranks_with_more_ * (least_ + 1);
    return expert < of_more ? by_more_.quotient(expert) : ranks_with_more_ + by_least_.quotient(expert - of_more);
  }

 private:
  int least_ = 1;
  int ranks_with_more_ = 0;
  Divider by_more_;
  Divider by_least_;
};

}  // namespace ferry
