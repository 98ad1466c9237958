#include "shmem/process/shmem_process.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <future>

#include "exchange/sizes/sizes.h"
#include "ferry/error.h"
#include "net/host/launch_environment.h"

namespace ferry::cpu {
namespace {

// How often the thread makes progress while the caller computes, and how soon it notices that the caller does so.
constexpr std::chrono::microseconds kMoveEvery{200};
constexpr std::chrono::microseconds kNoticeWithin{5000};

// Runs a call that may never return on a thread of its own. False: it did not return in time, and the thread is left.
bool returns_within(std::chrono::milliseconds deadline, const std::function<void()>& call) {
  auto done = std::make_shared<std::promise<void>>();
  std::future<void> is_done = done->get_future();
  std::thread([done, call] {
    call();
    done->set_value();
  }).detach();
  return is_done.wait_for(std::min(deadline, kMaxDeadline)) == std::future_status::ready;
}

std::size_t wanted_heap(const ShmemOptions& options, const net::LaunchedProcess& launched) {
  if (options.heap_bytes != 0) return options.heap_bytes;
  if (const std::size_t set = shmem::heap_bytes_of_environment(); set != 0) return set;
  return shmem::default_heap_bytes(launched.on_this_host);
}

net::LaunchedProcess require_launched() {
  if (const auto launched = net::launched_process()) return *launched;
  throw Error(ErrorKind::unsupported,
              "OpenSHMEM ranks are processes, and no launcher started this one: start it as `oshrun -np RANKS ...`, or "
              "with `srun --mpi=pmix`");
}

}  // namespace

ShmemProcess::ShmemProcess(const ShmemOptions& options) {
  const net::LaunchedProcess launched = require_launched();
  const std::size_t heap_bytes = wanted_heap(options, launched);
  shmem::prepare_environment(heap_bytes);
  const auto started = std::make_shared<shmem::Started>();
  if (!returns_within(options.start_deadline, [started, heap_bytes] { *started = shmem::start(heap_bytes); }))
    throw Error(
        ErrorKind::peer_missing,
        fmt::format("rank {}: OpenSHMEM had not started after {} ms: one of the {} processes did not come. Look "
                    "for what ended it, and start the job again",
                    launched.rank, options.start_deadline.count(), launched.size));
  started_ = *started;
  if (!started_.threads)
    throw Error(ErrorKind::unsupported, fmt::format("rank {}: this OpenSHMEM was built without threads", rank()));
  if (started_.heap == nullptr)
    throw Error(ErrorKind::system,
                fmt::format("rank {}: OpenSHMEM has no {} bytes of symmetric memory; set SHMEM_SYMMETRIC_HEAP_SIZE to "
                            "less",
                            rank(), heap_bytes));
  arena_.emplace(started_.heap, started_.heap_bytes);
  for (int peer = 0; peer < size(); ++peer)
    mapped_.push_back(peer == rank() ? started_.heap : shmem::pointer(started_.heap, peer));
  if (!maps_all(size())) mover_ = std::thread([this] { move_bytes(); });
}

ShmemProcess::~ShmemProcess() { stop_moving(); }

bool ShmemProcess::maps_all(int ranks) const {
  return std::find(mapped_.begin(), mapped_.begin() + ranks, nullptr) == mapped_.begin() + ranks;
}

void ShmemProcess::keep(std::shared_ptr<const void> read_late) {
  const std::lock_guard lock(guard_);
  kept_.push_back(std::move(read_late));
}

// Puts leave and arrive only while a process calls the library. While the caller does so itself, this thread stays
// away: it would only contend for the lock.
void ShmemProcess::move_bytes() {
  std::uint64_t seen = 0;
  auto pause = kNoticeWithin;
  std::unique_lock lock(guard_);
  while (!stopped_.wait_for(lock, pause, [this] { return stopping_; })) {
    const bool is_needed = shmem::num_calls() == seen;
    if (is_needed) shmem::progress();
    pause = is_needed ? kMoveEvery : kNoticeWithin;
    seen = shmem::num_calls();
  }
}

void ShmemProcess::stop_moving() {
  {
    const std::lock_guard lock(guard_);
    stopping_ = true;
  }
  stopped_.notify_all();
  if (mover_.joinable()) mover_.join();
}

void ShmemProcess::end(std::chrono::milliseconds deadline) {
  stop_moving();
  ended_ = true;
  if (returns_within(deadline, [] { shmem::end(); })) return;
  throw Error(ErrorKind::system, fmt::format("rank {}: OpenSHMEM did not end within {} ms: a process of the job is "
                                             "missing. Leave by std::_Exit, as its clean-up waits for all",
                                             rank(), deadline.count()));
}

}  // namespace ferry::cpu
