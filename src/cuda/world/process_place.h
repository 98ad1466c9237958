// What worlds of one process per GPU read from their place: which GPU is this process's, and whom it meets where.
#pragma once

#include "ferry/processes.h"
#include "net/joining.h"

namespace ferry::cuda {

// `device` where it is not negative; else this process's only GPU, or that of its local rank. Throws
// Error(unsupported) where there is none, Error(invalid_argument) where it does not exist.
int choose_device(int device, const ProcessPlace& place);

// Throws Error(invalid_argument) where there are more than `most_ranks`, or the address is none.
net::Job job_of(const ProcessPlace& place, int most_ranks);

}  // namespace ferry::cuda
