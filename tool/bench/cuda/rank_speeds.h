// What one rank of several measures of the machine, all of them at once.
#pragma once

#include "ferry/world.h"
#include "tool/bench/gpu/bench_gpu.h"

namespace ferry::app {

// Collective. `is_process`: others' addresses mean nothing here, so the wire is left out. Of ranks that are threads the
// first one fills `speeds`, which they share.
void measure_rank_speeds(World& world, int device, bool is_process, GpuSpeeds& speeds);

int multiprocessors_of(int device);

}  // namespace ferry::app
