// How fast NVSHMEM puts messages (bench/gpu/bench_gpu.h).
#pragma once

#include "tool/bench/gpu/bench_gpu.h"

namespace ferry::app {

PutSpeeds measure_nvshmem_puts(const Ranks& ranks, std::size_t message);

}  // namespace ferry::app
