// A world of emulated GPUs in which ranks at an odd distance are reached by LatePuts only, as of other nodes.
#pragma once

#include <memory>
#include <vector>

#include "ferry/world.h"

namespace ferry::test {

// Any number of ranks, rank r on device r; exchanges take device memory, or host memory if `staged`. Formats: bf16,
// fp8_block128, fp8_block128_ue8m0, mxfp8, nvfp4; of results: bf16, f32, fp8_block128, nvfp4.
std::vector<std::unique_ptr<World>> make_late_worlds(int ranks, bool staged = false);

}  // namespace ferry::test
