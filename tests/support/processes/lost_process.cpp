#include "support/processes/lost_process.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <stdexcept>

#include "conformance/rounds/rank_round.h"

namespace ferry::test {
namespace {

using conformance::Form;
using conformance::RankRound;
using conformance::Scenario;
using conformance::ScenarioSettings;

constexpr std::chrono::milliseconds kDeadline{2000};

ScenarioSettings settings_for(int ranks, bool survivors) {
  ScenarioSettings settings;
  settings.shape = {ranks, 3 * ranks, 3, 9, 64};
  settings.options = conformance::options_for("mxfp8");
  settings.options.deadline = kDeadline;
  if (survivors) {
    settings.options.mask.assign(static_cast<std::size_t>(ranks), false);
    settings.options.mask[kLostProcess] = true;
    settings.options.deadline = conformance::kSuiteDeadline;
  }
  return settings;
}

// `call` must throw PeerMissing that names the rank that ended.
void expect_missing(const char* what, const std::function<void()>& call) {
  try {
    call();
  } catch (const PeerMissing& error) {
    if (error.record().missing_rank == kLostProcess) return;
    throw std::runtime_error(std::string(what) + " names another rank: " + error.what());
  }
  throw std::runtime_error(std::string(what) + " misses no rank");
}

// Who is stopped stays so until the test kills it.
[[noreturn]] void end_by(int signal) {
  kill(getpid(), signal);
  std::abort();
}

}  // namespace

void lose_a_process(World& world, const std::string& when, int signal) {
  const Scenario scenario = make_scenario(settings_for(world.size(), false));
  const Scenario after = make_scenario(settings_for(world.size(), true));
  const bool ends = world.rank() == kLostProcess;
  if (when == "before_set_up") {
    if (ends) end_by(signal);
    expect_missing("making an exchange", [&] { Exchange(world, scenario.settings.shape, scenario.settings.options); });
  } else {
    Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
    run_round(exchange, scenario, Form::split);
    RankRound round(scenario, world.rank());
    if (ends && when == "before_dispatch") end_by(signal);
    if (ends && when == "after_async") {
      exchange.dispatch_async(round.in);
      end_by(signal);
    }
    if (when == "before_dispatch") {
      expect_missing("dispatch", [&] { exchange.dispatch(round.in, round.out); });
    } else {
      exchange.dispatch(round.in, round.out);
      if (ends) end_by(signal);
      round.check_rows();
      expect_missing("combine", [&] { exchange.combine(round.combine_in, round.combine_out); });
    }
    expect_missing("a later call", [&] { exchange.dispatch(round.in, round.out); });
  }
  Exchange survivors(world, after.settings.shape, after.settings.options);
  for (int turn = 0; turn < 3; ++turn) run_round(survivors, after, Form::split);
}

}  // namespace ferry::test
