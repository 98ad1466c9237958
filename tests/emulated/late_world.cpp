#include "emulated/late_world.h"

#include <utility>

#include "cpu/thread_world.h"
#include "cuda/device/device_memory.h"
#include "cuda/world/gpu_world.h"
#include "emulated/late_kernels.h"
#include "emulated/late_puts.h"
#include "exchange/sizes/heap_directory.h"
#include "exchange/sizes/sizes.h"
#include "ferry/detail/cuda/launch/receive_launch.cuh"
#include "ferry/detail/cuda/launch/small_launch.cuh"
#include "support/emulated_gpu/machine.h"

namespace ferry::test {
namespace {

using cuda::DeviceHeaps;
using cuda::DeviceMemory;
using Directory = HeapDirectory<DeviceMemory>;

// All ranks' memory, which each rank keeps (I16), and the way there.
struct LateHeaps {
  std::vector<std::shared_ptr<DeviceMemory>> all;
  std::byte* own;

  LateHeaps(std::vector<std::shared_ptr<DeviceMemory>> memory, int rank)
      : all(std::move(memory)), own(all[static_cast<std::size_t>(rank)]->data()) {
    std::vector<std::byte*> heaps;
    for (const auto& each : all) heaps.push_back(each == nullptr ? nullptr : each->data());
    LateNet::add(own, std::make_shared<LateNet>(std::move(heaps)));
  }
  ~LateHeaps() { LateNet::remove(own); }
  LateHeaps(const LateHeaps&) = delete;
  LateHeaps& operator=(const LateHeaps&) = delete;
};

// Puts land on the machine's thread.
cuda::RankDevice device_of(int rank) {
  cuda::RankDevice made{.index = rank};
  made.finish_puts = [rank] {
    const auto stream = emulated::make_stream(rank);
    emulated::enqueue(*stream, [] { LateNet::land_all(); });
    emulated::synchronize(*stream);
  };
  return made;
}

class LateWorld final : public cuda::GpuWorld<World> {
 public:
  LateWorld(std::unique_ptr<World> threads, std::shared_ptr<Directory> directory, bool staged)
      : GpuWorld(device_of(threads->rank()), staged), threads_(std::move(threads)), directory_(std::move(directory)) {}

  WorldKind kind() const override { return WorldKind::cuda; }
  int rank() const override { return threads_->rank(); }
  int size() const override { return threads_->size(); }
  bool has_remote_ranks() const override { return size() > 1; }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const RankMask& mask,
                  std::chrono::milliseconds deadline) override {
    threads_->all_gather(mine, all, mask, deadline);
  }

 private:
  cuda::Launchers launchers() const override {
    static const cuda::SmallLaunchers kSmall = cuda::small_launchers<LateFabric>();
    static const cuda::ReceiveLaunchers kReceive = cuda::receive_launchers<LateFabric>();
    return {
        &find_late_dispatch, &late_given_rows(),        &find_late_combine,    &kSmall, &kReceive, LateFabric::kName,
        &late_scaling(),     &late_given_scaled_rows(), &find_late_f16_combine};
  }
  const char* fabric() const override { return LateFabric::kName; }
  cuda::GpuHeaps make_heaps(std::size_t bytes, const ExchangeOptions& options) override {
    const auto mine = std::make_shared<DeviceMemory>(bytes);
    const auto kept = std::make_shared<LateHeaps>(directory_->share_heaps(*this, mine, options), rank());
    DeviceHeaps heaps(static_cast<std::size_t>(size()));
    for (int peer = 0; peer < size(); ++peer)
      if ((peer - rank()) % 2 == 0 && kept->all[static_cast<std::size_t>(peer)] != nullptr)
        heaps[static_cast<std::size_t>(peer)] = {kept, kept->all[static_cast<std::size_t>(peer)]->data()};
    return heaps;
  }

  std::unique_ptr<World> threads_;
  std::shared_ptr<Directory> directory_;
};

}  // namespace

std::vector<std::unique_ptr<World>> make_late_worlds(int ranks, bool staged) {
  const auto directory = std::make_shared<Directory>();
  std::vector<std::unique_ptr<World>> worlds;
  for (std::unique_ptr<World>& threads : cpu::make_worlds_of_threads(ranks))
    worlds.push_back(std::make_unique<LateWorld>(std::move(threads), directory, staged));
  return worlds;
}

}  // namespace ferry::test
