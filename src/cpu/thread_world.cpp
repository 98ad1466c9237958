// ThreadWorld: ranks as threads of one process. They meet in a Hub that all of them own.
#include "cpu/thread_world.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "base/abort_notice.h"
#include "base/debug_log.h"
#include "cpu/calls/cpu_steps.h"
#include "cpu/fabric/host_fabric.h"
#include "cpu/lone_steps.h"
#include "exchange/agreement/together.h"
#include "exchange/sizes/heap_directory.h"
#include "ferry/error.h"
#include "ferry/exchange.h"
#include "ferry/world.h"

namespace ferry::cpu {
namespace {

// `memory` has Heaps.
std::unique_ptr<ExchangeSteps> make_host_steps(int rank, const Shape& shape, const ExchangeOptions& options,
                                               const HeapMap& map, const std::shared_ptr<ExchangeMemory>& memory) {
  return make_cpu_steps<HostFabric>(
      rank, shape, options, map,
      [&](int as, std::size_t abort_words, const std::uint8_t* masked) {
        return std::make_unique<HostFabric>(as, MemoryOf<Heaps>::of(*memory), abort_words, masked);
      },
      memory);
}

// One all_gather under way.
struct Gather {
  explicit Gather(int ranks) : part(static_cast<std::size_t>(ranks)), come(static_cast<std::size_t>(ranks)) {}

  std::vector<std::vector<std::byte>> part;  // [ranks]; empty: has not come
  std::vector<bool> come;
  int left = 0;        // ranks that took the result
  int failed_on = -1;  // the rank that did not come

  // Masks differ between ranks, so a rank may still wait when as many have left as one of the others waited for.
  bool all_have_left() const { return left == static_cast<int>(std::count(come.begin(), come.end(), true)); }
};

class Hub {
 public:
  explicit Hub(int ranks) : ranks_(ranks) {}
  int ranks() const { return ranks_; }

  void all_gather(std::uint64_t turn, int rank, std::span<const std::byte> mine, std::span<std::byte> all,
                  const RankMask& mask, std::chrono::milliseconds deadline) {
    std::unique_lock lock(guard_);
    if (const AbortNotice* own = find_abort(rank)) throw_aborted(rank, *own, mask, turn);
    Gather& gather = gathers_.try_emplace(turn, ranks_).first->second;
    gather.part[static_cast<std::size_t>(rank)].assign(mine.begin(), mine.end());
    gather.come[static_cast<std::size_t>(rank)] = true;
    changed_.notify_all();
    const auto is_over = [&] {
      return gather.failed_on >= 0 || missing(gather, mask) < 0 || first_abort(gather, mask, rank) != nullptr;
    };
    if (!changed_.wait_for(lock, std::min(deadline, kMaxDeadline), is_over)) {
      gather.failed_on = missing(gather, mask);
      changed_.notify_all();
    }
    if (gather.failed_on >= 0) throw_missing(rank, gather.failed_on, turn, deadline);
    if (const AbortNotice* notice = missing(gather, mask) < 0 ? nullptr : first_abort(gather, mask, rank))
      throw_aborted(rank, *notice, mask, turn);
    int other = -1;  // a rank that gave another number of bytes
    std::size_t given = 0;
    for (int peer = 0; peer < ranks_; ++peer) {
      const auto& part = gather.part[static_cast<std::size_t>(peer)];
      std::byte* to = all.data() + static_cast<std::size_t>(peer) * mine.size();
      std::fill_n(to, mine.size(), std::byte{0});
      if (is_masked(mask, peer)) continue;
      std::copy_n(part.begin(), std::min(part.size(), mine.size()), to);
      if (other < 0 && part.size() != mine.size()) other = peer, given = part.size();
    }
    ++gather.left;
    if (gather.all_have_left()) gathers_.erase(turn);
    if (other >= 0)
      throw Error(
          ErrorKind::invalid_argument,
          fmt::format("rank {}: all_gather: rank {} gave {} bytes and this rank {}; all must give the same, and "
                      "make the same calls in the same order",
                      rank, other, given, mine.size()));
  }

  void tell_aborted(const AbortNotice& notice) {
    const std::lock_guard lock(guard_);
    aborts_.push_back(notice);
    changed_.notify_all();
  }

  std::string abort_reason(int rank) {
    const std::lock_guard lock(guard_);
    const AbortNotice* notice = find_abort(rank);
    return notice == nullptr ? std::string() : notice->reason;
  }

  HeapDirectory<Heap>& heaps() { return heaps_; }

 private:
  int missing(const Gather& gather, const RankMask& mask) const {
    for (int rank = 0; rank < ranks_; ++rank)
      if (!is_masked(mask, rank) && !gather.come[static_cast<std::size_t>(rank)]) return rank;
    return -1;
  }

  const AbortNotice* find_abort(int rank) const {
    const auto found =
        std::find_if(aborts_.begin(), aborts_.end(), [rank](const AbortNotice& each) { return each.rank == rank; });
    return found == aborts_.end() ? nullptr : &*found;
  }

  // The first abort by `own` or by a rank that has not joined this gather. A rank that joined before it aborted does
  // not end the gather, so all ranks finish the same calls.
  const AbortNotice* first_abort(const Gather& gather, const RankMask& mask, int own) const {
    for (const AbortNotice& each : aborts_)
      if (!is_masked(mask, each.rank) && (each.rank == own || !gather.come[static_cast<std::size_t>(each.rank)]))
        return &each;
    return nullptr;
  }

  [[noreturn]] static void throw_missing(int rank, int missing, std::uint64_t turn,
                                         std::chrono::milliseconds deadline) {
    WaitRecord record;
    record.operation = Operation::set_up;
    record.my_rank = record.reported_by = rank;
    record.missing_rank = missing;
    record.epoch_wanted = turn;
    throw PeerMissing(record,
                      fmt::format("rank {}: rank {} did not come to set-up call {} within the deadline of {} ms. "
                                  "Check that it is alive and makes the same calls, or give a mask that names it",
                                  rank, missing, turn, deadline.count()));
  }

  const int ranks_;
  std::mutex guard_;
  std::condition_variable changed_;
  std::map<std::uint64_t, Gather> gathers_;
  std::vector<AbortNotice> aborts_;  // in the order in which they came
  HeapDirectory<Heap> heaps_;
};

class ThreadWorld final : public World {
 public:
  ThreadWorld(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}

  WorldKind kind() const override { return WorldKind::threads; }
  WorldCapabilities capabilities() const override { return {.release = true, .shared_memory = true}; }
  const char* backend() const override { return "cpu"; }
  int rank() const override { return rank_; }
  int size() const override { return hub_->ranks(); }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const RankMask& mask,
                  std::chrono::milliseconds deadline) override {
    if (all.size() != mine.size() * static_cast<std::size_t>(size()))
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("rank {}: all_gather: `all` has {} bytes; it must have {} x {}", rank_, all.size(),
                              size(), mine.size()));
    if (is_masked(mask, rank_))
      throw Error(ErrorKind::invalid_argument, fmt::format("rank {}: the mask takes out this rank itself", rank_));
    hub_->all_gather(++turn_, rank_, mine, all, mask, deadline);
  }

  void tell_aborted(const AbortNotice& notice) override { hub_->tell_aborted(notice); }
  std::string abort_reason(int rank) override { return hub_->abort_reason(rank); }

  std::unique_ptr<ExchangeSteps> make_steps(const Shape& shape, const ExchangeOptions& options,
                                            const HeapMap& map) override {
    if (options.skip_a2a) return make_lone_steps(rank_, shape, options, map);
    std::shared_ptr<Heap> mine;  // zero before anyone else can see it (I13)
    const auto make_own = [&] { mine = std::make_shared<Heap>(map.total()); };
    together(*this, make_own, options.mask, set_up_deadline(options));
    const auto memory = std::make_shared<MemoryOf<Heaps>>(hub_->heaps().share_heaps(*this, mine, options));
    return make_steps_in(memory, shape, options, map);
  }
  std::unique_ptr<ExchangeSteps> make_steps_in(const std::shared_ptr<ExchangeMemory>& memory, const Shape& shape,
                                               const ExchangeOptions& options, const HeapMap& map) override {
    if (options.skip_a2a) return make_lone_steps(rank_, shape, options, map, memory);
    return make_host_steps(rank_, shape, options, map, memory);
  }

 private:
  std::shared_ptr<Hub> hub_;
  int rank_;
  std::uint64_t turn_ = 0;
};

}  // namespace

std::unique_ptr<ExchangeSteps> make_lone_steps(int rank, const Shape& shape, const ExchangeOptions& options,
                                               const HeapMap& map, const std::shared_ptr<ExchangeMemory>& memory) {
  if (memory != nullptr) return make_host_steps(rank, shape, options, map, memory);
  const auto made = std::make_shared<MemoryOf<Heaps>>(Heaps{std::make_shared<Heap>(map.total())});
  return make_host_steps(rank, shape, options, map, made);
}

std::vector<std::unique_ptr<World>> make_worlds_of_threads(int ranks) {
  const auto hub = std::make_shared<Hub>(ranks);
  std::vector<std::unique_ptr<World>> worlds;
  for (int rank = 0; rank < ranks; ++rank) worlds.push_back(std::make_unique<ThreadWorld>(hub, rank));
  return worlds;
}

// Fresh pages are zero. Huge ones where the system has them: the slots are many and large.
Heap::Heap(std::size_t bytes)
    : memory_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)), bytes_(bytes) {
  if (memory_ == MAP_FAILED)
    throw Error(ErrorKind::system,
                fmt::format("no memory for an exchange of {} bytes; make max_tokens smaller", bytes));
  madvise(memory_, bytes, MADV_HUGEPAGE);  // refused where there are none, and that is fine
}
Heap::~Heap() { munmap(memory_, bytes_); }

std::size_t Heap::give_back(std::size_t begin, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t first = (begin + page - 1) / page * page;
  const std::size_t end = (begin + bytes) / page * page;
  if (first >= end) return 0;
  if (madvise(data() + first, end - first, is_shared_ ? MADV_REMOVE : MADV_DONTNEED) != 0)
    throw Error(ErrorKind::system,
                fmt::format("madvise: the system does not take {} bytes back: {}; it keeps memory that is locked "
                            "(mlock)",
                            end - first, std::strerror(errno)));
  return end - first;
}

}  // namespace ferry::cpu

namespace ferry {

std::vector<std::unique_ptr<World>> make_thread_worlds(int ranks) {
  if (ranks < 1 || ranks > kMaxRanksPerNode)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("ranks is {}; a world of threads has 1 to {} ranks", ranks, kMaxRanksPerNode));
  debug_log(DebugLevel::info, kOfProcess,
            [&] { return fmt::format("world of {} threads: every rank stores to every other one", ranks); });
  return cpu::make_worlds_of_threads(ranks);
}

void run_ranks(int ranks, const std::function<void(World&)>& body) { run_worlds(make_thread_worlds(ranks), body); }

}  // namespace ferry
