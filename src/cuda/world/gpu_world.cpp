#include "cuda/world/gpu_world.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "cuda/exchange/host_memory/staged_steps.h"
#include "cuda/exchange/plan/shape_limits.h"
#include "cuda/world/mapped_memory.h"
#include "exchange/agreement/together.h"
#include "exchange/sizes/sizes.h"
#include "ferry/detail/cuda/state/cuda_check.h"

namespace ferry::cuda {
namespace {

// A rank's GPU.
struct DeviceClaim {
  char uuid[16];
  char bus[16];
  std::int32_t device;
  std::int32_t may_share;
  std::int32_t is_known;
};

// Throws nothing, since all ranks must take part in the gathering. A device that does not answer is left unknown, and
// the next CUDA call throws.
DeviceClaim claim_of(int device, bool may_share) {
  DeviceClaim claim{};
  cudaDeviceProp properties{};
  claim.is_known = cudaGetDeviceProperties(&properties, device) == cudaSuccess &&
                   cudaDeviceGetPCIBusId(claim.bus, sizeof claim.bus, device) == cudaSuccess;
  if (!claim.is_known) cudaGetLastError();
  std::memcpy(claim.uuid, properties.uuid.bytes, sizeof claim.uuid);
  claim.device = device;
  claim.may_share = may_share;
  return claim;
}

bool is_same_gpu(const DeviceClaim& one, const DeviceClaim& other) {
  return one.is_known != 0 && other.is_known != 0 && std::memcmp(one.uuid, other.uuid, sizeof one.uuid) == 0;
}

// One rank's own memory. Where others of the process reach it, they do so at the same addresses.
class OwnMemory final : public HeapMemory {
 public:
  OwnMemory(std::shared_ptr<MappedMemory> mine, std::vector<int> devices, World& world)
      : mine_(std::move(mine)), devices_(std::move(devices)), world_(world) {}
  void give_back(const RankMask&) override { mine_->give_back(); }
  void take_again(const RankMask& mask, std::chrono::milliseconds deadline) override {
    ferry::together(
        world_, [&] { mine_->allocate(devices_); }, mask, deadline);
  }

 private:
  std::shared_ptr<MappedMemory> mine_;
  const std::vector<int> devices_;
  World& world_;
};

}  // namespace

void require_bulk_copies(int device) {
  int major = 0;
  int minor = 0;
  cuda_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  cuda_check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
  if (major < 9)
    throw Error(
        ErrorKind::unsupported,
        fmt::format("device {} is of compute capability {}.{}; dispatch and combine need bulk copies, which GPUs "
                    "have from 9.0 (Hopper) on. cuda_swiglu runs from 8.0 on",
                    device, major, minor));
}

void GpuRank::together(const std::function<void()>& work, const RankMask& mask, std::chrono::milliseconds deadline) {
  ferry::together(world_, work, mask, deadline);
}

int ranks_of_device(int rank, int size, int device, bool may_share, const GatherBytes& gather) {
  const DeviceClaim mine = claim_of(device, may_share);
  std::vector<DeviceClaim> claims(static_cast<std::size_t>(size));
  gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(claims)));
  int found = 0;
  for (std::size_t one = 0; one < claims.size(); ++one) {
    found += is_same_gpu(claims[one], mine) ? 1 : 0;
    for (std::size_t other = one + 1; other < claims.size(); ++other)
      if (is_same_gpu(claims[one], claims[other]) && !(claims[one].may_share && claims[other].may_share))
        throw Error(ErrorKind::invalid_argument,
                    fmt::format("rank {}: ranks {} and {} both use GPU {} (their devices {} and {}). Give each process "
                                "its own device, or, for tests, set share_gpus on both",
                                rank, one, other, claims[one].bus, claims[one].device, claims[other].device));
  }
  return std::max(found, 1);
}

void GpuRank::count_ranks_on_device(bool may_share, std::chrono::milliseconds deadline) {
  device_.ranks = ranks_of_device(world_.rank(), world_.size(), device_.index, may_share,
                                  [&](auto mine, auto all) { world_.all_gather(mine, all, {}, deadline); });
}

void GpuRank::require_supported(const ExchangeOptions& options, const Launchers* compiled) const {
  if (compiled == nullptr) return;
  if (staged_)
    throw Error(ErrorKind::unsupported,
                fmt::format("rank {}: kernels of the program itself need a world whose calls take device memory "
                            "(make_cuda_worlds); this one takes host memory",
                            world_.rank()));
  require_kernels(options, compiled->fabric);
}

// Kernels over the fabric of the world's transport are always accepted. Kernels over DirectFabric are accepted if all
// ranks are direct and their addresses fit into a kernel's parameter, or with skip_a2a, which sends nothing.
void GpuRank::require_kernels(const ExchangeOptions& options, const std::string& given) const {
  const bool is_direct = given == direct_launchers().fabric;
  if (given == fabric() ||
      (is_direct && (options.skip_a2a || (!world_.has_remote_ranks() && world_.size() <= kMaxGpuRanks))))
    return;
  if (is_direct)
    throw Error(ErrorKind::unsupported,
                fmt::format("rank {}: the kernels of a CompiledExchange reach the ranks of one node, at most {}, and "
                            "this world has several nodes or more ranks; compile them over the fabric {} "
                            "(ferry/cuda/compiled_{}_exchange.cuh)",
                            world_.rank(), kMaxGpuRanks, fabric(), fabric()));
  throw Error(ErrorKind::unsupported,
              fmt::format("rank {}: kernels over the fabric {} need a world of make_{}_world; this one is {}, for "
                          "which there is CompiledExchange (ferry/cuda/compiled_exchange.cuh)",
                          world_.rank(), given, given, world_.backend()));
}

// With skip_a2a nothing is sent, so kernels over DirectFabric serve any world.
Launchers GpuRank::kernels_for(const ExchangeOptions& options, const Launchers* compiled) const {
  if (compiled != nullptr) return *compiled;
  return options.skip_a2a ? direct_launchers() : launchers();
}

std::shared_ptr<HeapMemory> GpuRank::make_own_heap(std::size_t bytes, const std::vector<int>& devices,
                                                   std::shared_ptr<std::byte>& heap) {
  const auto mine = MappedMemory::reserve(bytes);
  mine->allocate(devices);
  heap = {mine, mine->data()};
  return std::make_shared<OwnMemory>(mine, devices, world_);
}

// Nothing is sent.
GpuHeaps GpuRank::make_lone_heap(std::size_t bytes) {
  DeviceHeaps heaps(1);
  if (can_release()) {
    auto behind = make_own_heap(bytes, {device_.index}, heaps[0]);
    return {std::move(heaps), std::move(behind)};
  }
  const auto mine = std::make_shared<DeviceMemory>(bytes);
  heaps[0] = {mine, mine->data()};
  return heaps;
}

std::unique_ptr<ExchangeSteps> GpuRank::make_gpu_steps(const Shape& shape, const ExchangeOptions& options,
                                                       const HeapMap& map, const Launchers* compiled,
                                                       const ExchangeMemory* memory) {
  const DeviceScope scope(device_.index);
  // All ranks are here, so no kernel waits for another rank's launch.
  if (device_.deferred_free != nullptr) device_.deferred_free->free();
  require_countable_tokens(shape, world_.rank());
  require_countable_entries(shape, world_.rank());
  // Only some ranks may have given kernels of their own, or some that do not reach this world's ranks.
  together([&] { require_supported(options, compiled); }, options.mask, set_up_deadline(options));
  GpuHeaps heaps;
  if (memory != nullptr)
    heaps = MemoryOf<GpuHeaps>::of(*memory);
  else if (!options.skip_a2a)
    heaps = make_heaps(map.total(), options);
  std::unique_ptr<ExchangeSteps> made;
  const auto make = [&] {
    if (memory == nullptr && options.skip_a2a) heaps = make_lone_heap(map.total());
    ExchangeOptions of_steps = options;
    if (staged_) of_steps.short_handles = false;  // the front makes whole ones of them, in host memory
    auto steps = std::make_unique<CudaSteps>(device_, world_.rank(), shape, of_steps, map,
                                             kernels_for(options, compiled), std::move(heaps));
    if (!staged_) {
      made = std::move(steps);
      return;
    }
    std::vector<RowLayout> layouts;
    for (int format = 0; format < num_formats(options); ++format)
      layouts.push_back(row_layout(shape, options, world_.rank(), format));
    made = std::make_unique<StagedSteps>(std::move(steps), std::move(layouts));
  };
  // No rank goes on before every rank has loaded its kernels: a kernel that runs may wait for a peer.
  together(make, options.mask, set_up_deadline(options));
  return made;
}

}  // namespace ferry::cuda
