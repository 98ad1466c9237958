// Worlds of GPUs that reach each other's memory (one host, NVLink): one process for all, or one for each.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ferry/world.h"
#include "ferry/worlds/process_world.h"
#include "ferry/worlds/processes.h"

namespace ferry {

// Devices that this process can use; 0 where there is no driver. Never throws.
int num_cuda_devices();

// Ranks of this process: element r is for the thread that plays rank r and runs on devices[r]. Exchanges take memory of
// their rank's device. Peer access is enabled between all pairs.
//   errors       Error(unsupported) that names the pair where two GPUs cannot reach each other, Error(invalid_argument)
//                where a device does not exist
//   shared GPUs  a device may come several times: each of its ranks gets its part of the multiprocessors. That is for
//                tests of many ranks on few GPUs; up to 8 on each are tested
//
// Ranks that share a GPU:
//   connections  CUDA_DEVICE_MAX_CONNECTIONS=32 keeps their streams apart
//   streams      each rank has its own, made with cudaStreamNonBlocking; for dispatch_all and combine_all
//                cudaStreamPerThread
//   waits        no rank waits for the whole device (cudaFree, cudaDeviceSynchronize) while another rank's kernel may
//                wait for it
//   memory       of a destroyed exchange is freed with the world, or when the ranks make their next exchange. That
//                call waits for the devices
std::vector<std::unique_ptr<World>> make_cuda_worlds(std::span<const int> devices);

// The same worlds for callers with host memory: every call copies its tensors to the device, runs, waits and copies the
// results back. For tests and tools; not for speed.
std::vector<std::unique_ptr<World>> make_staged_cuda_worlds(std::span<const int> devices);

struct CudaProcessOptions {
  ProcessPlace place{};  // what is left out comes from the launcher's environment
  int device = -1;       // of this process; -1: its only one, or that of its local rank
  std::chrono::milliseconds deadline = kDefaultDeadline;  // for all processes to come
  bool staged = false;                                    // calls take host memory, as of make_staged_cuda_worlds
  bool share_gpus = false;  // several ranks may have the same GPU, and take turns there: for tests
};

// One rank per process, each with a GPU of the same host; this process's end of the world. Collective over the
// processes. Each rank's memory is allocated once per exchange and mapped by all others. It stays until the last
// rank lets it go, even after its own process has ended. If a process ends, set-up finds it missing at once, and a
// round at its deadline.
//
// Throws on every rank: PeerMissing that names a process that does not come; Error(invalid_argument) where two
// processes have the same rank, or the same GPU without share_gpus, or differ in the number of ranks;
// Error(unsupported) that names the pair where two GPUs cannot reach each other or two ranks are on different hosts.
std::unique_ptr<ProcessWorld> make_cuda_process_world(const CudaProcessOptions& options = {});

// Device memory that an exchange on GPUs has on a rank besides the symmetric memory of ferry::memory_use: counters, and
// what combine must know of a dispatch. Neither says what CUDA takes for kernels, streams and the start of a process,
// nor the copies of a staged world. Throws Error(invalid_argument) as row_layout.
std::size_t cuda_state_bytes(const Shape& shape, const ExchangeOptions& options, int rank = 0);

// As ferry::run_ranks, over make_cuda_worlds or make_staged_cuda_worlds; rank r is on device r / ranks_per_gpu. Throws
// Error(invalid_argument) where there are fewer GPUs than that takes, and what make_cuda_worlds and `body` throw.
void run_cuda_ranks(int ranks, bool staged, const std::function<void(World&)>& body, int ranks_per_gpu = 1);

}  // namespace ferry
