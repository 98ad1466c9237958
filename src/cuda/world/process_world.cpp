// CudaProcessWorld: one rank per process, each with one GPU of the same host. The processes meet by TCP; each maps the
// memory of all others, by file descriptors that travel between them.
#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "cuda/world/driver.h"
#include "cuda/world/gpu_world.h"
#include "cuda/world/mapped_memory.h"
#include "cuda/world/peer_reach.h"
#include "cuda/world/process_place.h"
#include "exchange/log/reach_log.h"
#include "exchange/sizes/sizes.h"
#include "ferry/cuda/cuda_world.h"
#include "ferry/detail/cuda/state/cuda_check.h"
#include "net/bootstrap_address.h"
#include "net/bootstrap_world.h"
#include "net/host/host_id.h"
#include "net/socket/descriptor_channel.h"

namespace ferry::cuda {
namespace {

// Where a rank is: its host, and its GPU.
struct Location {
  net::HostId host;
  char bus[16];
  std::int32_t device;
};

Location location_of(int device) {
  Location location{};
  location.host = net::this_host();
  cuda_check(cudaDeviceGetPCIBusId(location.bus, sizeof location.bus, device), "cudaDeviceGetPCIBusId");
  location.device = device;
  return location;
}

void require_one_host(int rank, const std::vector<Location>& all) {
  std::vector<net::HostId> hosts;
  for (const Location& each : all) hosts.push_back(each.host);
  net::require_one_host(rank, hosts, "this world's GPUs must be of one host");
}

// If CUDA_VISIBLE_DEVICES hides a peer's device from this process, only mapping its memory shows whether it can be
// reached.
bool can_reach(const Location& mine, const Location& peer) {
  int device = 0;
  int can = 1;
  if (cudaDeviceGetByPCIBusId(&device, peer.bus) != cudaSuccess) {
    cudaGetLastError();
    return true;
  }
  if (device != mine.device) cuda_check(cudaDeviceCanAccessPeer(&can, mine.device, device), "cudaDeviceCanAccessPeer");
  return can != 0;
}

void require_reach_of(int rank, const std::vector<Location>& all) {
  const auto location = [&](int which) -> const Location& { return all[static_cast<std::size_t>(which)]; };
  require_reach(
      rank, static_cast<int>(all.size()), [&](int peer) { return can_reach(location(rank), location(peer)); },
      [&](int which) { return fmt::format("GPU {} of rank {}", location(which).bus, which); });
}

class CudaProcessWorld final : public GpuWorld<net::BootstrapWorld> {
 public:
  CudaProcessWorld(const CudaProcessOptions& options, const ProcessPlace& place, const net::Job& job)
      : GpuWorld({choose_device(options.device, place)}, options.staged,
                 std::make_unique<net::Bootstrap>(job, options.deadline)),
        channel_(place.rank, place.size, bootstrap().token()) {
    const DeviceScope scope(device());
    std::vector<Location> all(static_cast<std::size_t>(size()));
    Location mine{};
    const auto look = [&] {
      require_bulk_copies(device());
      mine = location_of(device());
    };
    together(look, {}, options.deadline);
    all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), {}, options.deadline);
    require_one_host(rank(), all);
    count_ranks_on_device(options.share_gpus, options.deadline);
    together([&] { require_reach_of(rank(), all); }, {}, options.deadline);
    bootstrap().set_up_is_done();
    log_reach(*this, fmt::format("world of {} processes with a GPU each: device {} ({})", size(), device(), mine.bus));
  }

  WorldKind kind() const override { return WorldKind::cuda_processes; }
  bool is_direct(int) const override { return true; }

 private:
  using Memories = std::vector<std::shared_ptr<MappedMemory>>;  // by rank; null for masked ranks

  class ProcessMemory final : public HeapMemory {
   public:
    ProcessMemory(CudaProcessWorld& world, Memories memories) : world_(world), memories_(std::move(memories)) {}
    void give_back(const RankMask& mask) override {
      for (std::size_t peer = 0; peer < memories_.size(); ++peer)
        if (memories_[peer] != nullptr && !is_masked(mask, static_cast<int>(peer))) memories_[peer]->give_back();
    }
    void take_again(const RankMask& mask, std::chrono::milliseconds deadline) override {
      world_.fill(memories_, mask, deadline);
    }

   private:
    CudaProcessWorld& world_;
    const Memories memories_;
  };

  bool can_release() const override { return true; }

  GpuHeaps make_heaps(std::size_t bytes, const ExchangeOptions& options) override {
    Memories memories(static_cast<std::size_t>(size()));
    const auto reserve = [&] {
      for (std::size_t peer = 0; peer < memories.size(); ++peer)
        if (!is_masked(options.mask, static_cast<int>(peer))) memories[peer] = MappedMemory::reserve(bytes);
    };
    together(reserve, options.mask, set_up_deadline(options));
    fill(memories, options.mask, set_up_deadline(options));
    DeviceHeaps heaps;
    for (const std::shared_ptr<MappedMemory>& each : memories)
      heaps.push_back(each == nullptr ? nullptr : std::shared_ptr<std::byte>(each, each->data()));
    return {std::move(heaps), std::make_shared<ProcessMemory>(*this, std::move(memories))};
  }

  // Collective: memory of this rank, if it has none, and that of the others at this rank's addresses for it.
  void fill(const Memories& memories, const RankMask& mask, std::chrono::milliseconds deadline) {
    net::Descriptor descriptor;
    const auto make_own = [&] {
      MappedMemory& mine = *memories[static_cast<std::size_t>(rank())];
      mine.allocate_shareable();
      descriptor = mine.make_descriptor();
    };
    together(make_own, mask, deadline);
    const std::vector<net::Descriptor> descriptors = channel_.all_to_all(
        descriptor, bootstrap().call(), mask, deadline, [&](int peer) { bootstrap().require_there(peer); });
    // I16: no rank goes on before every rank holds all heaps.
    together([&] { open_heaps(descriptors, memories); }, mask, deadline);
  }

  void open_heaps(const std::vector<net::Descriptor>& descriptors, const Memories& memories) const {
    for (std::size_t peer = 0; peer < descriptors.size(); ++peer) {
      if (!descriptors[peer]) continue;
      try {
        memories[peer]->open(descriptors[peer]);
      } catch (const DriverError& error) {
        throw cannot_map(fmt::format("device {} of rank {}", device(), rank()), fmt::format("rank {}", peer),
                         error.lacks_memory(), error.what());
      }
    }
  }

  net::DescriptorChannel channel_;
};

}  // namespace
}  // namespace ferry::cuda

namespace ferry {

std::unique_ptr<ProcessWorld> make_cuda_process_world(const CudaProcessOptions& options) {
  const ProcessPlace place = place_of_process(options.place);
  // Comes before the ranks meet: a rank that throws here leaves no other one in an all_gather.
  const net::Job job = net::job_of(place, kMaxGpuRanks);
  return std::make_unique<cuda::CudaProcessWorld>(options, place, job);
}

}  // namespace ferry
