// CountsInput: the ids of a dispatch by counts, which name the first expert of each rank that a token goes to.
#pragma once

#include <cstdint>
#include <vector>

#include "exchange/checks/validate.h"

namespace ferry {

class CountsInput {
 public:
  // Checks in_rank and expert_counts, and what may not be given beside them. `args` gets ids, which are good until the
  // next call, and counts. Host memory.
  // `can_do`: WorldCapabilities::counts_dispatch.
  void apply(const CheckContext& context, bool can_do, const DispatchInput& in, DispatchArgs& args);

 private:
  std::vector<std::int32_t> ids_;  // [n, K]
};

// Refuses outputs that a dispatch by counts cannot fill: those that follow from ids, and in a replay the counts.
void check_counts_output(const CheckContext& context, const DispatchOutput& out, bool is_replay);

}  // namespace ferry
