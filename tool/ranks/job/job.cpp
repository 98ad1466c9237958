#include "tool/ranks/job/job.h"

#include <fmt/core.h>

#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "ferry/error.h"
#include "ferry/worlds/processes.h"
#include "net/host/launch_environment.h"
#include "tool/text/output.h"
#include "tool/text/progress.h"

namespace ferry::app {
namespace {

constexpr int kAtWork = -1;
constexpr std::chrono::milliseconds kTellEvery{200};

std::unique_ptr<Job>& joined() {
  static std::unique_ptr<Job> job;
  return job;
}

struct Waits {
  std::chrono::milliseconds deadline = kDefaultDeadline;
  std::string option;  // that sets it; empty: none does
};
Waits& waits_of_job() {
  static Waits waits;
  return waits;
}

// By a launcher, or by hand with a rank, a size and an address. What of Slurm's own stands in a batch script as well,
// where no process of a job runs, does not count. torchrun's processes, too, may stand in a step of Slurm.
std::optional<net::LaunchedProcess> started_process() {
  if (const auto launched = net::launched_process()) return launched;
  const auto is_set = [](const char* name) { return std::getenv(name) != nullptr; };
  if (!is_set("RANK") || !is_set("WORLD_SIZE") || (!is_set("FERRY_ADDRESS") && !is_set("MASTER_ADDR")))
    return net::launched_process_without_shmem();
  const ProcessPlace place = place_of_process();
  return net::LaunchedProcess{place.rank, place.size, place.size};
}

// Tells all processes how the first one's work ended: 0, or its exit code; kAtWork: it has not.
int share_outcome(Job& job, int outcome, std::chrono::milliseconds deadline) {
  std::vector<int> all(static_cast<std::size_t>(job.world().size()));
  job.world().all_gather(std::as_bytes(std::span(&outcome, 1)), std::as_writable_bytes(std::span(all)), {}, deadline);
  return all.front();
}

// While the first process works alone, a thread of its own tells the others that it is there, and hears that they are:
// so none of them waits longer than a deadline for one that is gone, however long the work takes.
class LoneWork {
 public:
  LoneWork(Job& job, std::chrono::milliseconds deadline)
      : job_(job), deadline_(deadline), teller_([this] { tell(); }) {}

  // Throws PeerMissing where another process was missing meanwhile.
  void end(int outcome) {
    {
      const std::lock_guard lock(guard_);
      outcome_ = outcome;
    }
    ended_.notify_all();
    teller_.join();
    if (lost_) std::rethrow_exception(lost_);
  }

 private:
  void tell() {
    try {
      while (share_outcome(job_, wait_for_outcome(), deadline_) == kAtWork) continue;
    } catch (...) {
      lost_ = std::current_exception();
    }
  }
  int wait_for_outcome() {
    std::unique_lock lock(guard_);
    ended_.wait_for(lock, kTellEvery, [this] { return outcome_ != kAtWork; });
    return outcome_;
  }

  Job& job_;
  const std::chrono::milliseconds deadline_;
  std::mutex guard_;
  std::condition_variable ended_;
  int outcome_ = kAtWork;
  std::exception_ptr lost_;
  std::thread teller_;  // last: it uses all others
};

}  // namespace

Job* joined_job() { return joined().get(); }

// OpenSHMEM's processes meet by their launcher; all others at an address.
static std::string awaited(WorldKind kind) {
  const int others = num_processes() - 1;
  const std::string who = others == 1 ? "the other process" : fmt::format("the other {} processes", others);
  if (kind == WorldKind::shmem) return "waiting for " + who;
  return fmt::format("waiting for {} at {}", who, place_of_process().address);
}

// By a launcher, not by a user who set RANK, WORLD_SIZE and an address. torchrun sets those, too, and one of its own.
static bool was_launched() {
  return net::launched_process() || net::launched_process_without_shmem() ||
         std::getenv("TORCHELASTIC_RUN_ID") != nullptr;
}

Job& join(std::unique_ptr<Job> (*start)(bool staged), bool staged, WorldKind kind) {
  {
    std::optional<Progress> waiting;
    if (num_processes() > 1 && speaks_for_all()) waiting.emplace(awaited(kind), Progress::kOneWait);
    joined() = start(staged);
  }
  if (!is_first_process()) keep_silent();
  return *joined();
}

bool is_first_process() { return joined() == nullptr || joined()->world().rank() == 0; }

bool has_launcher() { return started_process().has_value(); }

int num_processes() {
  const auto started = started_process();
  return started ? started->size : 1;
}

int process_number() {
  const auto started = started_process();
  return started ? started->rank : 0;
}

bool has_other_processes() noexcept {
  try {
    return num_processes() > 1;
  } catch (const std::exception&) {
    return false;
  }
}

bool speaks_for_all() noexcept {
  try {
    return !was_launched() || process_number() == 0;
  } catch (const std::exception&) {
    return true;
  }
}

void finish_job() {
  if (joined()) joined()->finish(job_deadline());
}

void set_job_deadline(std::chrono::milliseconds deadline, const std::string& option) {
  waits_of_job() = {deadline, option};
}

std::chrono::milliseconds job_deadline(std::chrono::milliseconds usual) {
  return waits_of_job().option.empty() ? usual : waits_of_job().deadline;
}

int exit_code_of(const std::exception& error) {
  if (const auto* first = dynamic_cast<const FirstProcessFailed*>(&error)) return first->exit_code();
  const auto* known = dynamic_cast<const Error*>(&error);
  return known != nullptr && known->kind() == ErrorKind::invalid_argument ? 2 : 1;
}

static std::string length_of(std::chrono::milliseconds deadline) {
  return fmt::format(" of {:g} s", std::chrono::duration<double>(deadline).count());
}

// OpenSHMEM's start does not say which process is missing, so its error is no PeerMissing.
static bool is_of_a_start(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  return known != nullptr && known->kind() == ErrorKind::peer_missing;
}

std::string message_of(const std::exception& error) {
  const std::string& option = waits_of_job().option;
  const std::string hint = option.empty() ? "" : fmt::format("; {} sets a longer deadline", option);
  const auto* missing = dynamic_cast<const PeerMissing*>(&error);
  if (missing == nullptr) return error.what() + (is_of_a_start(error) ? hint : "");
  const WaitRecord& record = missing->record();
  if (record.operation != Operation::set_up || record.absence == Absence::aborted) return error.what();
  if (record.absence == Absence::ended)
    return fmt::format("rank {0}: the process of rank {1} has ended; see what rank {1} printed", record.my_rank,
                       record.missing_rank);
  if (record.missing_rank == record.my_rank)
    return fmt::format("rank {} came too late: the other ranks waited until their deadline and went on without it{}",
                       record.my_rank, hint);
  return fmt::format(
      "rank {0}: rank {1} did not come within the deadline{2}; see whether the process of rank {1} still runs and what "
      "it printed{3}",
      record.my_rank, record.missing_rank,
      record.reported_by == record.my_rank ? length_of(job_deadline()) : fmt::format(" of rank {}", record.reported_by),
      hint);
}

void in_first_process(std::chrono::milliseconds deadline, const std::function<void()>& body) {
  Job* job = joined_job();
  if (job == nullptr) return body();
  if (!is_first_process()) {
    int code = kAtWork;
    while (code == kAtWork) code = share_outcome(*job, kAtWork, deadline);
    if (code != 0) throw FirstProcessFailed(code);
    return;
  }
  LoneWork work(*job, deadline);
  try {
    body();
  } catch (const std::exception& error) {
    work.end(exit_code_of(error));
    throw;
  }
  work.end(0);
}

std::string text_of_first_process(std::string text) {
  Job* job = joined_job();
  if (job == nullptr) return text;
  ProcessWorld& world = job->world();
  const std::uint64_t mine = text.size();
  std::vector<std::uint64_t> all(static_cast<std::size_t>(world.size()));
  world.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), {}, kDefaultDeadline);
  text.resize(all.front());
  const auto bytes = std::as_writable_bytes(std::span(text));
  if (!is_first_process()) world.receive(bytes, 0);
  for (int rank = 1; is_first_process() && rank < world.size(); ++rank) world.send(bytes, rank);
  return text;
}

}  // namespace ferry::app
