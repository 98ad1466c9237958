// The conformance suite, as one of its ranks, and what processes alone can get wrong.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "conformance/rounds/rank_round.h"
#include "conformance/suite.h"
#include "ferry/worlds/process_world.h"
#include "net/bootstrap.h"
#include "support/processes/lost_process.h"
#include "support/processes/process_suite.h"
#include "support/processes/workers.h"
#include "support/wants_all.h"

namespace ferry::test {
namespace {

using conformance::Form;
using conformance::Scenario;
using conformance::ScenarioSettings;

constexpr std::chrono::hours kAnHour{1};

std::unique_ptr<World> world_at(const ProcessPlace& place) { return make_process_world({.place = place}); }

int run_suite(const std::string& only) {
  ProcessSuite processes(place_of_process(), world_at);
  conformance::Target target = processes.target("processes");
  target.hooks_may_throw = true;
  return processes.run_suite(target, only, run_few_or_all);
}

Scenario scenario_of(int ranks) {
  ScenarioSettings settings;
  settings.shape = {ranks, 3 * ranks, 3, 9, 64};
  settings.options = conformance::options_for("mxfp8");
  settings.options.deadline = kAnHour;
  return make_scenario(settings);
}

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

// Over a bootstrap of its own, which stands for the caller's process group.
void meet_by_all_gather() {
  const ProcessPlace given = place_of_process();
  net::Bootstrap group({net::parse_address(given.address), given.rank, given.size, "group"}, kDefaultDeadline);
  ProcessOptions options;
  options.place.rank = given.rank;
  options.place.size = given.size;
  options.place.all_gather = [&](std::span<const std::byte> mine) {
    std::vector<std::byte> all(mine.size() * static_cast<std::size_t>(given.size));
    group.all_gather(mine, all, {}, kDefaultDeadline);
    return all;
  };
  const auto world = make_process_world(options);
  const Scenario scenario = scenario_of(world->size());
  Exchange exchange(*world, scenario.settings.shape, scenario.settings.options);
  run_round(exchange, scenario, Form::split);
  require(group.call() == 2, "the function was called more than once");  // the bootstrap's own call was the first
}

// Rank 0 sends as much as no socket holds to each other one, which sends it back.
void send_bytes() {
  const auto world = make_process_world();
  std::vector<std::byte> sent(std::size_t{5} << 20);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i % 251);
  std::vector<std::byte> got(sent.size());
  if (world->rank() != 0) {
    world->receive(got, 0);
    world->send(got, 0);
    return;
  }
  for (int rank = 1; rank < world->size(); ++rank) {
    require(world->is_direct(rank), "a rank of this host is not direct");
    world->send(sent, rank);
    world->receive(got, rank);
    require(got == sent, "other bytes came back");
  }
}

// A rank ends in a round: the others wait for it, or for one that does.
void end_in_a_round() {
  const auto world = make_process_world();
  const Scenario scenario = scenario_of(world->size());
  Exchange exchange(*world, scenario.settings.shape, scenario.settings.options);
  run_round(exchange, scenario, Form::split);
  if (world->rank() == kLostProcess) kill(getpid(), SIGKILL);
  try {
    run_round(exchange, scenario, Form::split);
  } catch (const PeerMissing& error) {
    require(error.record().missing_rank == kLostProcess, std::string("names another rank: ") + error.what());
    require(error.record().reported_by != world->rank() || error.record().absence == Absence::ended, error.what());
    return;
  }
  throw std::runtime_error("misses no rank");
}

// Rank kLostProcess stops. Some wait for it in a dispatch, the others for those at a barrier, or the other way round.
void stop_while_others_wait(bool last_at_barrier) {
  constexpr std::chrono::milliseconds kDeadline{2000};
  const auto world = make_process_world();
  const Scenario scenario = scenario_of(world->size());
  Exchange exchange(*world, scenario.settings.shape, scenario.settings.options);
  run_round(exchange, scenario, Form::split);
  if (world->rank() == kLostProcess) kill(getpid(), SIGSTOP);
  const bool is_last = world->rank() == world->size() - 1;
  try {
    if (is_last == last_at_barrier) {
      world->barrier({}, kDeadline);
    } else {
      conformance::RankRound round(scenario, world->rank());
      exchange.dispatch(round.in, round.out, {.deadline = kDeadline});
    }
  } catch (const PeerMissing& error) {
    return require(error.record().missing_rank == kLostProcess, std::string("names another rank: ") + error.what());
  }
  throw std::runtime_error("misses no rank");
}

void abort_while_others_wait(World& world, Exchange& exchange, const Scenario& scenario) {
  run_round(exchange, scenario, Form::split);
  if (world.rank() == kLostProcess) {
    world.abort("out of patience");
    world.barrier({}, std::chrono::milliseconds(1));
    return;
  }
  if (world.rank() == 0) return world.barrier({}, kAnHour);
  run_round(exchange, scenario, Form::split);
}

// Every rank finds the abort. A rank that has found it keeps its exchange for a while: one that is destroyed says so to
// the others, who may not have looked for the abort yet.
void expect_abort() {
  constexpr std::chrono::milliseconds kUntilAllHave{500};
  const auto world = make_process_world();
  const Scenario scenario = scenario_of(world->size());
  Exchange exchange(*world, scenario.settings.shape, scenario.settings.options);
  try {
    abort_while_others_wait(*world, exchange, scenario);
  } catch (const Aborted& error) {
    require(error.record().missing_rank == kLostProcess, std::string("names another rank: ") + error.what());
    require(error.reason() == "out of patience", std::string("gives another reason: ") + error.what());
    std::this_thread::sleep_for(kUntilAllHave);
    return;
  }
  throw std::runtime_error("found no abort");
}

[[noreturn]] void kill_all() {
  const auto world = make_process_world();
  const Scenario scenario = scenario_of(world->size());
  Exchange exchange(*world, scenario.settings.shape, scenario.settings.options);
  run_round(exchange, scenario, Form::split);
  world->barrier();
  kill(getpid(), SIGKILL);
  std::abort();
}

}  // namespace

int work(const std::string& what) {
  const std::size_t colon = what.find(':');
  const std::string kind = what.substr(0, colon);
  const std::string rest = colon == std::string::npos ? "" : what.substr(colon + 1);
  try {
    if (kind == "suite") return run_suite(rest);
    if (kind == "all_gather") meet_by_all_gather();
    if (kind == "bytes") send_bytes();
    if (kind == "kill") lose_a_process(*make_process_world(), rest, SIGKILL);
    if (kind == "stop") lose_a_process(*make_process_world(), rest, SIGSTOP);
    if (kind == "stop_elsewhere") stop_while_others_wait(rest == "at_barrier");
    if (kind == "ended") end_in_a_round();
    if (kind == "abort") expect_abort();
    if (kind == "kill_all") kill_all();
    return 0;
  } catch (const std::exception& error) {
    std::printf("%s: %s\n", what.c_str(), error.what());
    return 1;
  }
}

}  // namespace ferry::test
