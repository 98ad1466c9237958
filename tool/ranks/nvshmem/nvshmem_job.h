// Starts the tool's processes as ranks of an NVSHMEM job, a GPU each.
#pragma once

#include <cstdint>

#include "tool/ranks/job/job_starters.h"

namespace ferry::app {

inline constexpr std::uint64_t kOwnBytesOfNvshmem = std::uint64_t{256} << 20;  // that it keeps of its heap for itself

JobStarter make_nvshmem_starter();

}  // namespace ferry::app
