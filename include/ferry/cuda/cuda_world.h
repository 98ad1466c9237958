// Worlds of GPUs that reach each other's memory (one host, NVLink).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ferry/world.h"

namespace ferry {

// Devices that this process can use; 0 where there is no driver. Never throws.
int num_cuda_devices();

// One rank per device, all in this process: element r is for the thread that plays rank r and runs on devices[r].
// Enables peer access between all pairs. Throws Error(unsupported) that names the pair where two cannot reach each
// other, and Error(invalid_argument) where a device does not exist or comes twice.
//
// Exchanges of these worlds take device memory of their rank's device. Calls only enqueue work on CallOptions::stream;
// errors that a kernel finds (a missing rank, a bad id) are thrown by the next call on the exchange. A bad id counts as
// -1.
std::vector<std::unique_ptr<World>> make_cuda_worlds(std::span<const int> devices);

// The same worlds for callers with host memory: every call copies its tensors to the device, runs, waits and copies the
// results back. For tests and tools; not for speed.
std::vector<std::unique_ptr<World>> make_staged_cuda_worlds(std::span<const int> devices);

// As ferry::run_ranks, over make_cuda_worlds or make_staged_cuda_worlds of devices 0 .. ranks-1.
void run_cuda_ranks(int ranks, bool staged, const std::function<void(World&)>& body);

}  // namespace ferry
