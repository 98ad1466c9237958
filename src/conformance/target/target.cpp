#include "conformance/target/target.h"

namespace ferry::conformance {

void RoundTally::skip(const std::string& why) {
  if (skipped++ == 0) why_skipped = why;
}

Target thread_target() {
  Target target;
  target.name = "cpu";
  target.max_ranks = kMaxRanksPerNode;
  target.hooks_may_throw = true;
  target.run_ranks = [](int ranks, const std::function<void(World&)>& body) { ferry::run_ranks(ranks, body); };
  target.make_worlds = [](int ranks) { return make_thread_worlds(ranks); };
  return target;
}

}  // namespace ferry::conformance
