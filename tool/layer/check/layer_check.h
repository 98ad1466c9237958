// The check behind `--check`: the layer again, dense and in float64, with no dispatch and no combine, and a bound on
// how far the layer's roundings may take it from that. layer_check.cpp derives the bound.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tool/io/memory.h"
#include "tool/layer/base/layer_plan.h"

namespace ferry::app {

enum class OracleTokens {
  as_sent,  // encoded and decoded in the format, as the experts see them: what is left is rounding, and is bounded
  as_given  // in bf16, not encoded: the difference shows what the format costs
};

struct CheckResult {
  double max_error = 0;    // largest |output - oracle|
  double bound_there = 0;  // the bound of that element
  double worst_share = 0;  // largest error / bound; the check holds when it is at most 1
  double rms_error = 0;
  double rms_value = 0;  // of the oracle's output
  std::int64_t worst_token = -1;
  int worst_column = -1;
  std::int64_t elements = 0;
  bool ok = true;  // every element is within its bound, and not finite just where the oracle is not
};

// Compares `output` [tokens, hidden] with the oracle. `progress` is called with tokens done.
CheckResult check_layer(const Layer& layer, const LayerOptions& options, const float* output, OracleTokens tokens,
                        const std::function<void(std::int64_t)>& progress = {});

// The oracle's output, [tokens, hidden], for layers small enough to hold it.
std::vector<double> oracle_values(const Layer& layer, const LayerOptions& options, OracleTokens tokens);

// Memory that check_layer uses.
MemoryNeed check_memory(const Layer& layer);

}  // namespace ferry::app
