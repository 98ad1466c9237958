// CudaWorld: one rank per GPU of this process. Ranks meet as in a thread world; only the memory differs.
#include "ferry/cuda/cuda_world.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>

#include "base/debug_log.h"
#include "cuda/world/gpu_world.h"
#include "cuda/world/mapped_memory.h"
#include "cuda/world/peer_reach.h"
#include "exchange/sizes/heap_directory.h"
#include "ferry/detail/cuda/state/cuda_check.h"

namespace ferry::cuda {
namespace {

struct OwnHeap {
  std::shared_ptr<std::byte> heap;
  std::shared_ptr<HeapMemory> behind;
};

// One for all ranks.
struct SharedHeaps {
  HeapDirectory<OwnHeap> directory;
  std::vector<int> reached_by;  // each device once; empty: one of them has no virtual memory management
};

class CudaWorld final : public GpuWorld<World> {
 public:
  CudaWorld(std::unique_ptr<World> threads, const RankDevice& device, bool staged, std::shared_ptr<SharedHeaps> heaps)
      : GpuWorld(device, staged), threads_(std::move(threads)), heaps_(std::move(heaps)) {}

  WorldKind kind() const override { return WorldKind::cuda; }
  int rank() const override { return threads_->rank(); }
  int size() const override { return threads_->size(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const RankMask& mask,
                  std::chrono::milliseconds deadline) override {
    threads_->all_gather(mine, all, mask, deadline);
  }
  void tell_aborted(const AbortNotice& notice) override { threads_->tell_aborted(notice); }
  std::string abort_reason(int rank) override { return threads_->abort_reason(rank); }

 private:
  bool can_release() const override { return !heaps_->reached_by.empty(); }

  GpuHeaps make_heaps(std::size_t bytes, const ExchangeOptions& options) override {
    auto mine = std::make_shared<OwnHeap>();
    const auto make_own = [&] {
      if (can_release()) {
        mine->behind = make_own_heap(bytes, heaps_->reached_by, mine->heap);
      } else {
        const auto memory = std::make_shared<DeviceMemory>(bytes);
        mine->heap = {memory, memory->data()};
      }
    };
    together(make_own, options.mask, set_up_deadline(options));
    DeviceHeaps heaps;
    for (const std::shared_ptr<OwnHeap>& each : heaps_->directory.share_heaps(*this, mine, options))
      heaps.push_back(each == nullptr ? nullptr : each->heap);
    return {std::move(heaps), mine->behind};
  }

  std::unique_ptr<World> threads_;
  std::shared_ptr<SharedHeaps> heaps_;
};

bool can_reach(int device, int peer) {
  int can = 1;
  if (device != peer) cuda_check(cudaDeviceCanAccessPeer(&can, device, peer), "cudaDeviceCanAccessPeer");
  return can != 0;
}

void require_reach_of_all(std::span<const int> devices) {
  const auto device_of = [&](int rank) { return devices[static_cast<std::size_t>(rank)]; };
  const int ranks = static_cast<int>(devices.size());
  for (int rank = 0; rank < ranks; ++rank)
    require_reach(
        rank, ranks, [&](int peer) { return can_reach(device_of(rank), device_of(peer)); },
        [&](int which) { return fmt::format("device {} of rank {}", device_of(which), which); });
}

void enable_peer_access(int device, int peer) {
  const DeviceScope scope(device);
  const cudaError_t status = cudaDeviceEnablePeerAccess(peer, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled)
    cudaGetLastError();
  else
    cuda_check(status, "cudaDeviceEnablePeerAccess");
}

std::vector<std::unique_ptr<World>> make_worlds(std::span<const int> devices, bool staged) {
  const int available = num_cuda_devices();
  std::map<int, int> ranks_of;
  for (const int device : devices) {
    if (device < 0 || device >= available)
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("device {} does not exist; this process sees {}", device, available));
    require_bulk_copies(device);
    ++ranks_of[device];
  }
  require_reach_of_all(devices);
  for (const int device : devices)
    for (const int peer : devices)
      if (device != peer) enable_peer_access(device, peer);
  const auto heaps = std::make_shared<SharedHeaps>();
  if (std::all_of(devices.begin(), devices.end(), has_virtual_memory))
    for (const auto& [device, ranks] : ranks_of) heaps->reached_by.push_back(device);
  const bool any_shared = ranks_of.size() < devices.size();
  const auto deferred_free =
      any_shared ? std::make_shared<DeferredFree>(std::vector<int>(devices.begin(), devices.end())) : nullptr;
  std::vector<std::unique_ptr<World>> worlds;
  std::vector<std::unique_ptr<World>> threads = make_thread_worlds(static_cast<int>(devices.size()));
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    debug_log(DebugLevel::info, static_cast<int>(rank), [&] {
      return fmt::format("world of {} GPUs of this process: device {}, which {} ranks have", devices.size(),
                         devices[rank], ranks_of[devices[rank]]);
    });
    worlds.push_back(std::make_unique<CudaWorld>(
        std::move(threads[rank]), RankDevice{devices[rank], ranks_of[devices[rank]], deferred_free}, staged, heaps));
  }
  return worlds;
}

}  // namespace
}  // namespace ferry::cuda

namespace ferry {

int num_cuda_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return count;
}

std::vector<std::unique_ptr<World>> make_cuda_worlds(std::span<const int> devices) {
  return cuda::make_worlds(devices, false);
}
std::vector<std::unique_ptr<World>> make_staged_cuda_worlds(std::span<const int> devices) {
  return cuda::make_worlds(devices, true);
}

void run_cuda_ranks(int ranks, bool staged, const std::function<void(World&)>& body, int ranks_per_gpu) {
  const int available = num_cuda_devices();
  if (ranks < 1 || ranks_per_gpu < 1 || ranks > available * ranks_per_gpu)
    throw Error(ErrorKind::invalid_argument, fmt::format("ranks is {}; this process sees {} GPUs, of {} ranks each",
                                                         ranks, available, ranks_per_gpu));
  std::vector<int> devices;
  for (int rank = 0; rank < ranks; ++rank) devices.push_back(rank / ranks_per_gpu);
  const auto worlds = cuda::make_worlds(devices, staged);
  run_worlds(worlds, body);
}

}  // namespace ferry
