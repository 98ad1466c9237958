// Starts the tool's processes as ranks of an NVSHMEM job, a GPU each.
#pragma once

#include "tool/ranks/job_starters.h"

namespace ferry::app {

JobStarter make_nvshmem_starter();

}  // namespace ferry::app
