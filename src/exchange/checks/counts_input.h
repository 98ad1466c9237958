// CountsInput: the ids of a dispatch by counts, which name the first expert of each rank that a token goes to.
#pragma once

#include <cstdint>
#include <vector>

#include "exchange/checks/validate.h"

namespace ferry {

class CountsInput {
 public:
  // Checks in_rank and expert_counts, and what may not be given beside them. `args` gets ids, which are good until the
  // next call, and counts. Where the caller has device memory, only shapes are checked, and `args` gets in_rank.
  // `can`: of the world.
  void apply(const CheckContext& context, const WorldCapabilities& can, const DispatchInput& in, DispatchArgs& args);

 private:
  void make_ids(const CheckContext& context, const DispatchInput& in, std::int64_t num_tokens);

  std::vector<std::int32_t> ids_;  // [n, K]
};

// Refuses outputs that a dispatch by counts cannot fill: those that follow from ids, and in a replay the counts.
void check_counts_output(const CheckContext& context, const DispatchOutput& out, bool is_replay);

}  // namespace ferry
