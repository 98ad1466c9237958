// The conformance suite, as one of its ranks; and ranks that end in the middle of a round.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "conformance/rank_round.h"
#include "conformance/suite.h"
#include "gpu/few_gpus.h"
#include "gpu/processes/process_backend.h"
#include "gpu/processes/workers.h"

namespace ferry::test {
namespace {

using conformance::Form;
using conformance::Plan;
using conformance::PlanSettings;
using conformance::RankRound;
using std::chrono::milliseconds;

constexpr int kEnds = 1;
constexpr milliseconds kDeadline{2000};

std::unique_ptr<World> staged_gpu_world(const ProcessPlace& place) {
  CudaProcessOptions options;
  options.place = place;
  options.device = gpu_of(place.rank);
  options.staged = options.share_gpus = true;
  return make_cuda_process_world(options);
}

// Set-up calls only, for running this program's own machinery where there is no GPU.
class MeetingWorld final : public World {
 public:
  explicit MeetingWorld(const ProcessPlace& place)
      : meeting_({net::parse_address(place.address), place.rank, place.size, place.job}, kDefaultDeadline) {}
  const char* backend() const override { return "meeting"; }
  int rank() const override { return meeting_.rank(); }
  int size() const override { return meeting_.size(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const RankMask& mask,
                  milliseconds deadline) override {
    meeting_.all_gather(mine, all, mask, deadline);
  }
  std::unique_ptr<ExchangeBackend> make_exchange(const Shape&, const ExchangeOptions&) override {
    throw Error(ErrorKind::unsupported, "a world without exchanges");
  }

 private:
  net::Meeting meeting_;
};

std::unique_ptr<World> meeting_world(const ProcessPlace& place) { return std::make_unique<MeetingWorld>(place); }

PlanSettings settings_for(int ranks, bool survivors) {
  PlanSettings settings;
  settings.shape = {ranks, 3 * ranks, 3, 9, 64};
  settings.options = conformance::options_for("mxfp8");
  settings.options.deadline = kDeadline;
  if (survivors) {
    settings.options.mask.assign(static_cast<std::size_t>(ranks), false);
    settings.options.mask[kEnds] = true;
    settings.options.deadline = conformance::kSuiteDeadline;
  }
  return settings;
}

// `call` must throw PeerMissing that names the rank that ended.
void expect_missing(const char* what, const std::function<void()>& call) {
  try {
    call();
  } catch (const PeerMissing& error) {
    if (error.record().missing_rank == kEnds) return;
    throw std::runtime_error(std::string(what) + " names another rank: " + error.what());
  }
  throw std::runtime_error(std::string(what) + " misses no rank");
}

[[noreturn]] void end_here() {
  kill(getpid(), SIGKILL);
  std::abort();
}

// Rank kEnds is killed at a point of a round; the others name it, and go on without it.
void lose_a_process(const std::string& when) {
  const ProcessPlace place = place_of_process();
  const std::unique_ptr<World> world = staged_gpu_world(place);
  const Plan plan = make_plan(settings_for(world->size(), false));
  const Plan after = make_plan(settings_for(world->size(), true));
  const bool ends = world->rank() == kEnds;
  if (when == "before_set_up") {
    if (ends) end_here();
    expect_missing("making an exchange", [&] { Exchange(*world, plan.settings.shape, plan.settings.options); });
  } else {
    Exchange exchange(*world, plan.settings.shape, plan.settings.options);
    run_round(exchange, plan, Form::split);
    RankRound round(plan, world->rank());
    if (ends && when == "before_dispatch") end_here();
    if (ends && when == "after_async") {
      exchange.dispatch_async(round.in);
      end_here();
    }
    if (when == "before_dispatch") {
      expect_missing("dispatch", [&] { exchange.dispatch(round.in, round.out); });
    } else {
      exchange.dispatch(round.in, round.out);
      if (ends) end_here();
      round.check_rows();
      expect_missing("combine", [&] { exchange.combine(round.combine_in, round.combine_out); });
    }
    expect_missing("a later call", [&] { exchange.dispatch(round.in, round.out); });
  }
  Exchange survivors(*world, after.settings.shape, after.settings.options);
  for (int turn = 0; turn < 3; ++turn) run_round(survivors, after, Form::split);
}

void share_a_gpu() {
  CudaProcessOptions options;
  options.device = 0;
  conformance::expect_error(-1, "two ranks on one GPU", ErrorKind::invalid_argument, {"ranks 0 and 1", "GPU"},
                            [&] { make_cuda_process_world(options); });
  options.place.job = "one of them says so";
  options.share_gpus = place_of_process().rank == 0;
  conformance::expect_error(-1, "one of two that may share a GPU", ErrorKind::invalid_argument,
                            {"ranks 0 and 1", "share_gpus on both"}, [&] { make_cuda_process_world(options); });
}

void name_a_device_that_is_not_there() {
  CudaProcessOptions options;
  options.device = num_cuda_devices();
  conformance::expect_error(-1, "no such device", ErrorKind::invalid_argument, {"device", "does not exist"},
                            [&] { make_cuda_process_world(options); });
}

}  // namespace

int work(const std::string& what) {
  const std::size_t colon = what.find(':');
  const std::string kind = what.substr(0, colon);
  const std::string rest = colon == std::string::npos ? "" : what.substr(colon + 1);
  try {
    if (kind == "suite" || kind == "meeting") {
      ProcessBackend processes(place_of_process(), kind == "suite" ? staged_gpu_world : meeting_world);
      return processes.run_suite(processes.backend(kind == "suite" ? "cuda" : "meeting"), rest);
    }
    if (kind == "lose") lose_a_process(rest);
    if (kind == "share") share_a_gpu();
    if (kind == "no_device") name_a_device_that_is_not_there();
    return 0;
  } catch (const std::exception& error) {
    std::printf("%s: %s\n", what.c_str(), error.what());
    return 1;
  }
}

}  // namespace ferry::test
