// Combine, the receiving side: the results of one token are here. All backends run this text.
#pragma once

#include "ferry/detail/protocol/step.h"

namespace ferry {

// Relies on I7. False: a rank did not come.
template <ReceiveStep S>
FERRY_HD bool await_results(const S& step, int token, const TokenResults& results) {
  const auto word = [&](int i) { return step.plan.map.result_arrived(token, results.index[i]); };
  const auto site = [&](int i) { return WaitSite{Operation::combine, Phase::result, results.rank[i], token}; };
  return step.fabric.wait_for_each(step.group, results.count, word, step.epoch, site, nullptr);
}

}  // namespace ferry
