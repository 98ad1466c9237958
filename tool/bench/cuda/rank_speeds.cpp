// The speeds of the machine: bulk copies of all ranks to all others at once, and copies inside each device's memory.
#include <algorithm>
#include <span>

#include "cuda/device/device_memory.h"
#include "ferry/detail/cuda/launch/launch.h"
#include "ferry/detail/cuda/state/cuda_check.h"
#include "tool/bench/cuda/copy_kernel.h"
#include "tool/bench/cuda/graph_timer.h"
#include "tool/bench/cuda/rank_speeds.h"
#include "tool/bench/cuda/wire_kernels.h"

namespace ferry::app {
namespace {

using cuda::cuda_check;
using cuda::DeviceMemory;

constexpr std::size_t kSizes[] = {std::size_t{256} << 10, std::size_t{1} << 20, std::size_t{4} << 20,
                                  std::size_t{16} << 20, std::size_t{64} << 20};  // to each peer
constexpr int kBlocks[] = {16, 32, 66, 132};
constexpr std::size_t kCopyBytes = std::size_t{1} << 30;
constexpr BenchEffort kEffort{21, 0};

// Where every rank's buffer is, for the others.
std::vector<std::byte*> share_addresses(World& world, std::byte* mine) {
  std::vector<std::byte*> all(static_cast<std::size_t>(world.size()));
  world.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), {}, kDefaultDeadline);
  return all;
}

// The caller's device is current.
std::vector<GpuSpeeds::Copy> measure_copies(World& world, int multiprocessors, const Stream& stream) {
  const DeviceMemory from(kCopyBytes), to(kCopyBytes);
  std::vector<GpuSpeeds::Copy> copies;
  for (const CopyMethod& method : kCopyMethods) {
    const auto copy = [&](int) {
      cuda_check(launch_copy(method, to.data(), from.data(), kCopyBytes, multiprocessors, stream), method.name);
    };
    copy(0);  // a kernel is loaded at its first launch: not in a capture
    stream.wait();
    const GraphTiming timing = time_graph(world, stream, 4, kEffort, copy);
    copies.push_back({method.name, 2.0 * static_cast<double>(kCopyBytes) / BenchSamples{timing.seconds}.at(0.5)});
  }
  return copies;
}

}  // namespace

int multiprocessors_of(int device) {
  int count = 0;
  cuda_check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  return count;
}

void measure_rank_speeds(World& world, int device, bool is_process, GpuSpeeds& speeds) {
  const cuda::DeviceScope scope(device);
  const auto size = static_cast<std::size_t>(world.size()), rank = static_cast<std::size_t>(world.rank());
  const std::size_t largest = *std::max_element(std::begin(kSizes), std::end(kSizes));
  const int multiprocessors = multiprocessors_of(device);
  const Stream stream;
  if (!is_process) {  // else others' addresses mean nothing here
    prepare_wire_copy();
    const DeviceMemory from(std::max<std::size_t>(1, size - 1) * largest), to(size * largest);
    const std::vector<std::byte*> heaps = share_addresses(world, to.data());
    WireCopy copy;
    copy.from = from.data();
    for (std::size_t step = 1; step < size; ++step)  // this rank's part of every other one's buffer
      copy.to[copy.peers++] = heaps[(rank + step) % size] + rank * largest;
    for (const std::size_t bytes : kSizes) {
      if (size == 1) break;
      copy.bytes = bytes;
      GpuSpeeds::Point best{static_cast<double>(bytes * (size - 1)), 0, 0};
      for (const int wanted : kBlocks) {
        const int blocks = std::min(wanted, multiprocessors);
        const double seconds =
            BenchSamples{
                time_graph(world, stream, 4, kEffort, [&](int) { launch_wire_copy(copy, blocks, stream); }).seconds}
                .at(0.5);
        if (best.blocks == 0 || seconds < best.seconds) best = {best.bytes, seconds, blocks};
      }
      if (rank == 0) speeds.wire.push_back(best);
    }
    world.barrier();  // nobody frees what another still writes to
  }
  std::vector<GpuSpeeds::Copy> copies = measure_copies(world, multiprocessors, stream);
  if (is_process || rank == 0) speeds.copies = std::move(copies);
}

}  // namespace ferry::app
