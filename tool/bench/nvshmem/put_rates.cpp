// How fast NVSHMEM puts messages, and how many have to be in flight for it.
#include <algorithm>
#include <span>

#include "cuda/device/device_memory.h"
#include "ferry/detail/cuda/launch/launch.h"
#include "nvshmem/nvshmem_world.h"
#include "nvshmem/plain_puts.h"
#include "tool/bench/cuda/graph_timer.h"
#include "tool/bench/nvshmem/put_rates.h"

namespace ferry::app {
namespace {

constexpr int kSlots = 512;
constexpr int kMostPutBlocks = 132;  // at most
constexpr int kWarps = 16;           // of a block, at most
constexpr BenchEffort kPutEffort{11, 0};

// A piece of the symmetric heap for all ranks' puts.
class PutMemory {
 public:
  PutMemory(cuda::NvshmemWorld& world, std::size_t message) {
    const auto size = static_cast<std::size_t>(world.size());
    const std::size_t part = kSlots * message;
    const auto gather = [&](std::span<const std::byte> mine, std::span<std::byte> all) {
      world.all_gather(mine, all.first(mine.size() * size), {}, kDefaultDeadline);
    };
    memory_ = cuda::NvshmemJob::take(world.job(), (size + 1) * part, {}, gather);
    puts_ = {memory_.get(), memory_.get() + size * part, message, kSlots, 0, world.rank(), world.size()};
    world.barrier();
  }
  cuda::PlainPuts puts(int count) const {
    cuda::PlainPuts puts = puts_;
    puts.count = count;
    return puts;
  }

 private:
  std::shared_ptr<std::byte> memory_;
  cuda::PlainPuts puts_;
};

double seconds_of(World& world, cudaStream_t stream, const cuda::PlainPuts& puts, int blocks, int warps) {
  const auto enqueue = [&](int) { launch_plain_puts(puts, blocks, warps, stream); };
  return BenchSamples{time_graph(world, stream, 4, kPutEffort, enqueue).seconds}.at(0.5);
}

}  // namespace

PutSpeeds measure_nvshmem_puts(const Ranks& ranks, std::size_t message) {
  auto& world = dynamic_cast<cuda::NvshmemWorld&>(ranks.world());
  const cuda::DeviceScope scope(ranks.device_of(world));
  const Stream stream;
  PutSpeeds speeds;
  if (world.size() == 1) return speeds;
  {
    const PutMemory memory(world, message);
    const int peers = world.size() - 1;
    for (const int to_each : {32, 128, 512, 2048, 8192}) {
      const int count = to_each * peers;
      const int blocks = std::min(kMostPutBlocks, count);
      const int warps = std::clamp(count / blocks, 1, kWarps);
      const double bytes = static_cast<double>(count) * static_cast<double>(message);
      speeds.points.push_back({bytes, seconds_of(world, stream, memory.puts(count), blocks, warps), blocks});
    }
    for (int in_flight = 1; in_flight <= kMostPutBlocks * kWarps; in_flight *= 4) {
      const int blocks = std::min(kMostPutBlocks, in_flight);
      const int warps = std::max(1, in_flight / blocks);
      const int count = std::min(blocks * warps * 16, 8192);
      const double bytes = static_cast<double>(count) * static_cast<double>(message);
      speeds.rates.push_back({blocks * warps, bytes / seconds_of(world, stream, memory.puts(count), blocks, warps)});
    }
    world.barrier();  // nobody gives back what another still writes to
  }
  return speeds;
}

}  // namespace ferry::app
