// The calls of a GPU rank, for a caller with host memory.
#pragma once

#include <memory>

#include "tool/ranks/rank_calls.h"

namespace ferry::app {

// Throws Error(system) where the device has too little memory for the rank's tensors.
std::unique_ptr<RankCalls> make_gpu_calls(int device, const Shape& shape, const RowLayout& layout, RowOrder order);

}  // namespace ferry::app
