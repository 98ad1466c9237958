// How a process of a world learns where rank 0 listens: by the address that all were given, or by an all_gather of the
// caller's (ProcessPlace::all_gather).
#pragma once

#include "ferry/worlds/processes.h"
#include "net/joining.h"

namespace ferry::net {

// `place` is complete (place_of_process). Throws Error(invalid_argument) where there are more than `most_ranks`, where
// the address is none, or where all_gather gave no entry of this job for each rank in rank order. With all_gather it is
// collective: rank 0 listens at a port that the system chooses and tells the others, who throw what it throws.
Job job_of(const ProcessPlace& place, int most_ranks);

}  // namespace ferry::net
