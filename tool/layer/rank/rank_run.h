// What one rank of a layer does.
#pragma once

#include "ferry/world.h"
#include "tool/layer/rank/layer_run.h"

namespace ferry::app {

// All rounds of the rank, on the thread that calls. Adds to `run` what the rank measured and counted.
void run_rank(LayerRun& run, World& world);

}  // namespace ferry::app
