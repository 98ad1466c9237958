// ShmemJob and its worlds: ranks as processes under OpenSHMEM's launcher.
#include "ferry/worlds/shmem_world.h"

#include <fmt/core.h>

#include <cstring>

#include "cpu/calls/cpu_steps.h"
#include "cpu/lone_steps.h"
#include "exchange/log/reach_log.h"
#include "exchange/sizes/heap_pieces.h"
#include "exchange/sizes/sizes.h"
#include "shmem/shmem_bootstrap.h"
#include "shmem/shmem_fabric.h"
#include "shmem/shmem_memory.h"

namespace ferry {
namespace cpu {
namespace {

// A rank's new piece of memory, as it tells the others; all zero for a rank that takes no part.
struct PieceOffset {
  enum State : std::uint64_t { takes_no_part, has_none, has_one };
  std::uint64_t state = takes_no_part;
  std::uint64_t offset = 0;
};

// Collective over the ranks that `gather` gathers from. Each rank that takes part allocates and prepares its piece, and
// learns the offsets of the others. If one rank has no memory left, all ranks throw.
template <class Prepare, class Gather>
std::unique_ptr<SymmetricMemory> share_symmetric_memory(const std::shared_ptr<ShmemProcess>& process,
                                                        const NodeMap& nodes, std::size_t bytes,
                                                        std::chrono::milliseconds deadline, const Prepare& prepare,
                                                        const Gather& gather) {
  std::unique_ptr<SymmetricMemory> memory;
  std::exception_ptr failed;
  PieceOffset mine;
  if (process->rank() < nodes.ranks) {
    mine.state = PieceOffset::has_none;
    try {
      memory = std::make_unique<SymmetricMemory>(process, nodes, bytes, deadline);
      prepare(*memory);
      mine = {PieceOffset::has_one, memory->offset()};
    } catch (const Error&) {
      failed = std::current_exception();
    }
  }
  const std::vector<PieceOffset> all = gather(mine);
  std::vector<std::uint64_t> offsets;
  int without = -1;
  for (const PieceOffset& each : all) {
    if (each.state == PieceOffset::has_none) without = static_cast<int>(offsets.size());
    offsets.push_back(each.state == PieceOffset::has_one ? each.offset : SymmetricMemory::kNoOffset);
  }
  if (memory) memory->connect(offsets);
  if (failed) std::rethrow_exception(failed);
  if (without >= 0)
    throw Error(ErrorKind::system,
                fmt::format("rank {}: rank {} has no {} bytes of symmetric memory left; start the processes with a "
                            "larger SHMEM_SYMMETRIC_HEAP_SIZE",
                            process->rank(), without, bytes));
  return memory;
}

// A `gather` for share_symmetric_memory over a bootstrap or a world: the offsets of all, by rank.
template <class Bootstrap>
auto gather_offsets(Bootstrap& bootstrap, int ranks, const RankMask& mask, std::chrono::milliseconds deadline) {
  return [&bootstrap, ranks, &mask, deadline](const PieceOffset& mine) {
    std::vector<PieceOffset> all(static_cast<std::size_t>(ranks));
    bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), mask, deadline);
    return all;
  };
}

class ShmemWorld final : public ProcessWorld {
 public:
  ShmemWorld(std::shared_ptr<ShmemProcess> process, const NodeMap& nodes, std::unique_ptr<ShmemBootstrap> bootstrap)
      : process_(std::move(process)), nodes_(nodes), bootstrap_(std::move(bootstrap)) {}

  WorldKind kind() const override { return WorldKind::shmem; }
  WorldCapabilities capabilities() const override {
    return {.remote_ranks = has_remote_ranks(), .shared_memory = true};
  }
  const char* backend() const override { return "shmem"; }
  int rank() const override { return process_->rank(); }
  int size() const override { return nodes_.ranks; }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const RankMask& mask,
                  std::chrono::milliseconds deadline) override {
    if (all.size() != mine.size() * static_cast<std::size_t>(size()))
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("rank {}: all_gather: `all` has {} bytes; it must have {} x {}", rank(), all.size(),
                              size(), mine.size()));
    if (is_masked(mask, rank()))
      throw Error(ErrorKind::invalid_argument, fmt::format("rank {}: the mask takes out this rank itself", rank()));
    bootstrap_->all_gather(mine, all, mask, deadline);
  }

  void tell_aborted(const AbortNotice& notice) override { bootstrap_->tell_aborted(notice); }
  std::string abort_reason(int rank) override { return bootstrap_->abort_reason(rank); }

  bool is_direct(int peer) const override { return nodes_.is_direct(rank(), peer, process_->mapped(peer) != nullptr); }

  void send(std::span<const std::byte> data, int to, std::chrono::milliseconds deadline) override {
    require_other_rank("send", to);
    bootstrap_->send(data, to, deadline);
  }
  void receive(std::span<std::byte> data, int from, std::chrono::milliseconds deadline) override {
    require_other_rank("receive", from);
    bootstrap_->receive(data, from, deadline);
  }

  // All ranks must give the same answer, since it decides the memory of an exchange.
  bool has_remote_ranks() const override { return nodes_.nodes > 1 || !process_->maps_all(size()); }

  std::unique_ptr<ExchangeSteps> make_steps(const Shape& shape, const ExchangeOptions& options,
                                            const HeapMap& map) override {
    if (options.skip_a2a) return make_lone_steps(rank(), shape, options, map);
    const auto memory = std::make_shared<MemoryOf<Memory>>(
        share(map.total(), options.mask, set_up_deadline(options), [&](SymmetricMemory& mine) { clear(mine, map); }));
    return make_steps_in(memory, shape, options, map);
  }
  // What a rank sent has landed when it has come to an all_gather: the bootstrap's signals follow a fence, and go to
  // the same ranks in the same way.
  std::unique_ptr<ExchangeSteps> make_steps_in(const std::shared_ptr<ExchangeMemory>& memory, const Shape& shape,
                                               const ExchangeOptions& options, const HeapMap& map) override {
    if (options.skip_a2a) return make_lone_steps(rank(), shape, options, map, memory);
    return make_cpu_steps<ShmemFabric>(
        rank(), shape, options, map,
        [&](int, std::size_t abort_words, const std::uint8_t* masked) {
          return std::make_unique<ShmemFabric>(MemoryOf<Memory>::of(*memory), bootstrap_->losses(), abort_words,
                                               masked);
        },
        memory);
  }

  // Collective over the ranks that the mask does not name.
  template <class Prepare>
  std::unique_ptr<SymmetricMemory> share(std::size_t bytes, const RankMask& mask, std::chrono::milliseconds deadline,
                                         const Prepare& prepare) {
    return share_symmetric_memory(process_, nodes_, bytes, deadline, prepare,
                                  gather_offsets(*bootstrap_, size(), mask, deadline));
  }

 private:
  using Memory = std::shared_ptr<SymmetricMemory>;
  void require_other_rank(const char* call, int other) const {
    if (other >= 0 && other < size() && other != rank()) return;
    throw Error(ErrorKind::invalid_argument,
                fmt::format("rank {}: {}: the other rank is {}; it must be 0 to {} and not this one", rank(), call,
                            other, size() - 1));
  }

  // I13: words are zero before another rank knows where they are. Slots and send buffers are the largest part by far;
  // they are written before they are read, so they need no zeros.
  static void clear(SymmetricMemory& memory, const HeapMap& map) {
    for (int index = 0; index < HeapMap::kRegions; ++index) {
      const auto region = static_cast<HeapMap::Region>(index);
      if (is_slots(region)) continue;
      std::memset(memory.local(map.begin(region)), 0, map.region_bytes(region));
    }
  }

  std::shared_ptr<ShmemProcess> process_;
  NodeMap nodes_;
  std::unique_ptr<ShmemBootstrap> bootstrap_;
};

}  // namespace

std::unique_ptr<SymmetricMemory> share_memory(World& world, std::size_t bytes, std::size_t zeroed,
                                              std::chrono::milliseconds deadline) {
  return dynamic_cast<ShmemWorld&>(world).share(bytes, {}, deadline,
                                                [&](SymmetricMemory& mine) { std::memset(mine.local(0), 0, zeroed); });
}

// The bootstrap of all processes and their losses. Its memory is the first of every process's heap, so all processes
// know its offset, and its words are zero from the start.
std::unique_ptr<ShmemBootstrap> make_job_bootstrap(const std::shared_ptr<ShmemProcess>& process,
                                                   std::chrono::milliseconds deadline) {
  const auto share_first = [&](std::size_t bytes) {
    auto memory = std::make_unique<SymmetricMemory>(process, NodeMap{process->size(), 1}, bytes, deadline);
    memory->connect(std::vector<std::uint64_t>(static_cast<std::size_t>(process->size()), memory->offset()));
    return memory;
  };
  auto losses = std::make_shared<ShmemLosses>(share_first(ShmemLosses::bytes(process->size())));
  const ShmemBootstrap::Map map(process->size());
  return std::make_unique<ShmemBootstrap>(share_first(map.total()), std::move(losses), map);
}

// Collective over all processes. Null for processes that are not among the ranks.
std::unique_ptr<ProcessWorld> make_shmem_world(const std::shared_ptr<ShmemProcess>& process, ShmemBootstrap& of_all,
                                               const NodeMap& nodes, std::chrono::milliseconds deadline) {
  const ShmemBootstrap::Map map(nodes.ranks);
  const RankMask all;
  auto memory = share_symmetric_memory(
      process, nodes, map.total(), deadline,
      [&](SymmetricMemory& mine) { std::memset(mine.local(0), 0, map.words_bytes()); },
      gather_offsets(of_all, process->size(), all, deadline));
  if (!memory) return nullptr;
  auto world = std::make_unique<ShmemWorld>(process, nodes,
                                            std::make_unique<ShmemBootstrap>(std::move(memory), of_all.losses(), map));
  log_reach(*world, fmt::format("world of {} processes over OpenSHMEM, {} nodes", nodes.ranks, nodes.nodes));
  return world;
}

}  // namespace cpu

ShmemJob::ShmemJob(const ShmemOptions& options)
    : process_(std::make_shared<cpu::ShmemProcess>(options)),
      bootstrap_(cpu::make_job_bootstrap(process_, options.start_deadline)) {}
ShmemJob::~ShmemJob() = default;

int ShmemJob::rank() const { return process_->rank(); }
int ShmemJob::size() const { return process_->size(); }

std::unique_ptr<ProcessWorld> ShmemJob::make_world(int ranks, int nodes, std::chrono::milliseconds deadline) {
  if (ranks < 0 || ranks > size())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("rank {}: a world of {} ranks; {} processes were started", rank(), ranks, size()));
  const NodeMap map{ranks == 0 ? size() : ranks, nodes};
  require_valid(map);
  return cpu::make_shmem_world(process_, *bootstrap_, map, deadline);
}

void ShmemJob::finish(std::chrono::milliseconds deadline) {
  const std::byte token{1};
  std::vector<std::byte> all(static_cast<std::size_t>(size()));
  bootstrap_->all_gather(std::span(&token, 1), all, {}, deadline);
  bootstrap_.reset();
  process_->end(deadline);
}

}  // namespace ferry
