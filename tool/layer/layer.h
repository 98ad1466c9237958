// One Mixture-of-Experts layer, run expert-parallel on ranks of this machine: tokens are split over the ranks, carried
// to the experts' ranks in rounds, and combined at home.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tool/io/memory.h"
#include "tool/layer/base/layer_plan.h"
#include "tool/layer/base/layer_report.h"
#include "tool/layer/rows/rank_rows.h"
#include "tool/ranks/ranks.h"

namespace ferry::app {

// Host memory that run_layer will use in all processes together, beside the arrays of the layer and the output.
std::vector<MemoryNeed> layer_memory(const Layer& layer, const LayerPlan& plan, const LayerOptions& options,
                                     bool on_gpus);

// output: float32 [tokens, hidden]; where this process plays only some of the ranks, their lines of it. The report is
// of all ranks, in every process. `progress` is called with rows done, from any thread. Where the experts run on the
// host, the default, all backends give the same bytes.
LayerReport run_layer(const Ranks& ranks, const Layer& layer, const LayerOptions& options, float* output,
                      const std::function<void(std::int64_t)>& progress = {}, const RowsObserver& observer = {});

}  // namespace ferry::app
