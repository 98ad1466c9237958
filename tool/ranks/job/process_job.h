// The tool's processes as ranks of worlds of processes on CPUs.
#pragma once

#include <memory>

#include "tool/ranks/job/job.h"

namespace ferry::app {

// Collective over all processes that a launcher started.
std::unique_ptr<Job> start_process_job(bool staged);

}  // namespace ferry::app
