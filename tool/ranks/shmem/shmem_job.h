// Starts the tool's processes as ranks of an OpenSHMEM job.
#pragma once

#include "tool/ranks/job/job_starters.h"

namespace ferry::app {

JobStarter make_shmem_starter();

}  // namespace ferry::app
