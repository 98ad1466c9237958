// Worlds of one process per GPU: which GPU this process has, and where its job meets.
#pragma once

#include "ferry/processes.h"
#include "net/joining.h"

namespace ferry::cuda {

// `device` if it is not negative; otherwise the only GPU of this process, or the GPU of its local rank. Throws
// Error(unsupported) if there is no GPU, Error(invalid_argument) if that GPU does not exist.
int choose_device(int device, const ProcessPlace& place);

// Throws Error(invalid_argument) where there are more than `most_ranks`, or the address is none.
net::Job job_of(const ProcessPlace& place, int most_ranks);

}  // namespace ferry::cuda
