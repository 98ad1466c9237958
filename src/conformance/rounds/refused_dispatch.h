// Dispatches that all ranks refuse, because one has more tokens than a dispatch can take.
#pragma once

#include <vector>

#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {

// How a rank calls such a dispatch. Ranks need not agree on it.
enum class RefusedBy { wait_for_counts, dispatch_wait, dispatch };
inline constexpr int kRefusedBy = 3;

// More tokens than max_tokens in place of those of a round. Nobody reads its ids and weights, which stay as they were.
class ExcessTokens {
 public:
  ExcessTokens(const Shape& shape, int excess)
      : count_(shape.max_tokens + excess), hidden_(shape.hidden), tokens_(static_cast<std::size_t>(count_ * hidden_)) {}
  // The round reads them from here.
  void give(RankRound& round) const;

 private:
  std::int64_t count_, hidden_;
  std::vector<float> tokens_;
};

// Throws Failure unless that call throws the error of rank `odd`, which has `excess` tokens more than it may, and has
// written nothing.
void run_refused_dispatch(Exchange& exchange, const RankRound& round, RefusedBy call, int odd, int excess);

}  // namespace ferry::conformance
