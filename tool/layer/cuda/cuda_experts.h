#pragma once

#include <memory>

#include "tool/layer/experts/expert_place.h"

namespace ferry::app {

// The experts of a rank that is a GPU, on it: rows stay there from dispatch to combine. Throws Error with the rank and
// the GPU; Error(system) where its memory is too small for the weights.
std::unique_ptr<Experts> make_cuda_experts(const ExpertsOfRank& of);

}  // namespace ferry::app
