// What cuda_bench prints beside the times of a round: floors, bounds, SM-time, and the speeds that they follow from.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ferry/world.h"
#include "tool/bench/gpu/bench_gpu.h"

namespace ferry::app {

// Of --speeds: of an earlier line; nothing: "none", and no floors and bounds.
std::optional<GpuSpeeds> speeds_named(const std::string& text);
GpuSpeeds measured_speeds(int ranks);

// Collective: of the busiest rank, where each gives its ids. bench.shape.max_tokens is the tokens of a rank.
GpuBytes bytes_of(World& world, const BenchCase& bench, const std::vector<std::int32_t>& ids);

struct Kernels {
  std::vector<GpuKernel> dispatch, pair;
};
// Members of a JSON object, a comma before each. `us`: of dispatch and pair.
std::string beside(const std::optional<GpuSpeeds>& speeds, const GpuBytes& bytes, const Kernels& kernels,
                   std::array<double, 2> us);

}  // namespace ferry::app
