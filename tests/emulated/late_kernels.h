// The kernels over LateFabric that carry tokens, of the formats that late_world.h lists.
#pragma once

#include "ferry/detail/cuda/launch/launch.h"

namespace ferry::test {

// Null where a late world has no such kernel.
const cuda::DispatchLauncher* find_late_dispatch(const char* name);
const cuda::CombineLauncher* find_late_combine(const char* name);
const cuda::DispatchLauncher& late_given_rows();
const cuda::CombineLauncher* find_late_f16_combine(const char* name);  // the same formats of results
const cuda::DispatchLauncher& late_scaling();                          // of nvfp4
const cuda::DispatchLauncher& late_given_scaled_rows();

}  // namespace ferry::test
