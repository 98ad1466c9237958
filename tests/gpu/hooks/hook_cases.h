// The cases of rounds with hooks that GPUs run, over DirectFabric and over NVSHMEM.
#pragma once

#include <vector>

#include "gpu/hooks/hook_rounds.h"

namespace ferry::test {

const std::vector<HookCase>& hook_cases();

}  // namespace ferry::test
