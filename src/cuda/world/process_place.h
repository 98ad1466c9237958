// Worlds of one process per GPU: which GPU this process has.
#pragma once

#include "ferry/worlds/processes.h"

namespace ferry::cuda {

// `device` if it is not negative; otherwise the only GPU of this process, or the GPU of its local rank. Throws
// Error(unsupported) if there is no GPU, Error(invalid_argument) if that GPU does not exist.
int choose_device(int device, const ProcessPlace& place);

}  // namespace ferry::cuda
