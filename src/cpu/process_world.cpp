// CpuProcessWorld: one rank per process, all of one host. The processes meet by TCP; each maps the heaps of all others,
// by descriptors that travel between them.
#include <fmt/core.h>

#include <vector>

#include "cpu/calls/cpu_steps.h"
#include "cpu/fabric/process_fabric.h"
#include "cpu/fabric/process_memory.h"
#include "cpu/fabric/shared_heap.h"
#include "cpu/lone_steps.h"
#include "exchange/agreement/together.h"
#include "exchange/log/reach_log.h"
#include "exchange/sizes/sizes.h"
#include "ferry/worlds/process_world.h"
#include "net/bootstrap_address.h"
#include "net/bootstrap_world.h"
#include "net/host/host_id.h"
#include "net/socket/descriptor_channel.h"

namespace ferry::cpu {
namespace {

class CpuProcessWorld final : public net::BootstrapWorld {
 public:
  CpuProcessWorld(const net::Job& job, std::chrono::milliseconds deadline)
      : BootstrapWorld(std::make_unique<net::Bootstrap>(job, deadline)),
        channel_(job.rank, job.size, bootstrap().token()) {
    const net::HostId mine = net::this_host();
    std::vector<net::HostId> all(static_cast<std::size_t>(size()));
    all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), {}, deadline);
    net::require_one_host(rank(), all, "the ranks of a process world share memory, so they must be of one host");
    bootstrap().set_up_is_done();
    log_reach(*this, fmt::format("world of {} processes on CPUs", size()));
  }

  WorldKind kind() const override { return WorldKind::processes; }
  WorldCapabilities capabilities() const override { return {.release = true, .shared_memory = true}; }
  const char* backend() const override { return "processes"; }
  bool is_direct(int) const override { return true; }

  std::unique_ptr<ExchangeSteps> make_steps(const Shape& shape, const ExchangeOptions& options,
                                            const HeapMap& map) override {
    if (options.skip_a2a) return make_lone_steps(rank(), shape, options, map);
    const auto memory =
        std::make_shared<MemoryOf<Heaps>>(share_heaps(map.total(), options.mask, set_up_deadline(options)));
    return make_steps_in(memory, shape, options, map);
  }
  std::unique_ptr<ExchangeSteps> make_steps_in(const std::shared_ptr<ExchangeMemory>& memory, const Shape& shape,
                                               const ExchangeOptions& options, const HeapMap& map) override {
    if (options.skip_a2a) return make_lone_steps(rank(), shape, options, map, memory);
    return make_cpu_steps<ProcessFabric>(
        rank(), shape, options, map,
        [&](int, std::size_t abort_words, const std::uint8_t* masked) {
          return std::make_unique<ProcessFabric>(bootstrap(), MemoryOf<Heaps>::of(*memory), abort_words, masked);
        },
        memory);
  }

  // Collective: everyone's heap in rank order, null for masked ranks. Each is zero before another rank can see it
  // (I13), and no rank goes on before every rank holds all (I16).
  Heaps share_heaps(std::size_t bytes, const RankMask& mask, std::chrono::milliseconds deadline) {
    Heaps heaps(static_cast<std::size_t>(size()));
    net::Descriptor mine;
    const auto make_own = [&] {
      mine = make_shared_memory(bytes);
      heaps[static_cast<std::size_t>(rank())] = map_shared_memory(mine, bytes);
    };
    together(*this, make_own, mask, deadline);
    const std::vector<net::Descriptor> theirs = channel_.all_to_all(mine, bootstrap().call(), mask, deadline,
                                                                    [&](int peer) { bootstrap().require_there(peer); });
    const auto map_others = [&] {
      for (std::size_t peer = 0; peer < theirs.size(); ++peer)
        if (theirs[peer]) heaps[peer] = map_shared_memory(theirs[peer], bytes);
    };
    together(*this, map_others, mask, deadline);
    return heaps;
  }

 private:
  net::DescriptorChannel channel_;
};

}  // namespace

Heaps share_process_memory(World& world, std::size_t bytes, std::chrono::milliseconds deadline) {
  return dynamic_cast<CpuProcessWorld&>(world).share_heaps(bytes, {}, deadline);
}

}  // namespace ferry::cpu

namespace ferry {

std::unique_ptr<ProcessWorld> make_process_world(const ProcessOptions& options) {
  const ProcessPlace place = place_of_process(options.place);
  // Comes before the ranks meet: a rank that throws here leaves no other one in an all_gather.
  const net::Job job = net::job_of(place, kMaxRanksPerNode);
  return std::make_unique<cpu::CpuProcessWorld>(job, options.deadline);
}

}  // namespace ferry
