// The kernels over LateFabric that carry tokens, of the formats that late_world.h lists.
#pragma once

#include "ferry/detail/cuda/kernels/launch.h"

namespace ferry::test {

// Null where a late world has no such kernel.
const cuda::DispatchLauncher* find_late_dispatch(const char* name);
const cuda::CombineLauncher* find_late_combine(const char* name);
const cuda::DispatchLauncher& late_given_rows();

}  // namespace ferry::test
