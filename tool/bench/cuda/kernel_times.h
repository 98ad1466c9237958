// Which kernels an operation is, and how its time falls on them.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <vector>

#include "ferry/world.h"
#include "tool/bench/gpu/bench_gpu.h"

namespace ferry::app {

// Collective; all ranks enqueue the same calls. The kernels of this rank's, with an event on either side of each: so
// none begins before the one ahead of it has ended, and only their shares of a time are meant. Empty where one of the
// ranks enqueues something else than kernels in a row.
std::vector<GpuKernel> time_kernels(World& world, cudaStream_t stream, const std::function<void()>& enqueue);

}  // namespace ferry::app
