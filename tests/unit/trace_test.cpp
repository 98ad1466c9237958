// What a Trace records of CPU ranks: the steps of each call in their order, whom they waited for, and nothing when it
// is off.
#include "ferry/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "conformance/rounds/rank_round.h"
#include "exchange/log/trace_log.h"
#include "ferry/exchange.h"
#include "ferry/world.h"

namespace ferry {
namespace {

using std::chrono::milliseconds;
using Names = std::vector<std::string>;

constexpr int kRanks = 3;

conformance::Scenario scenario_of(int workers = 1) {
  conformance::ScenarioSettings settings;
  settings.shape = {kRanks, 6, 2, 5, 64};
  settings.options = conformance::options_for("mxfp8");
  settings.options.deadline = milliseconds(20'000);
  settings.options.workers = workers;
  return conformance::make_scenario(settings);
}

// One event, as far as the tests need it. A line of a trace holds one.
struct Event {
  std::string kind;  // "X", "M"
  std::string name;
  long process = 0;
  long track = 0;
  long begin = 0;  // ns
  long end = 0;
  std::string facts;
};

std::string text_after(const std::string& line, const std::string& key) {
  const std::size_t at = line.find("\"" + key + "\":");
  if (at == std::string::npos) return {};
  std::size_t begin = at + key.size() + 3;
  const char stop = line[begin] == '"' ? '"' : ',';
  begin += stop == '"' ? 1 : 0;
  return line.substr(begin, line.find(stop, begin) - begin);
}

// "12.345" us
long nanoseconds(std::string microseconds) {
  microseconds.erase(microseconds.find('.'), 1);
  return std::stol(microseconds);
}

std::vector<Event> events_of(const Trace& trace) {
  std::vector<Event> events;
  std::istringstream lines(trace.events());
  for (std::string line; std::getline(lines, line);) {
    Event event;
    event.kind = text_after(line, "ph");
    event.name = text_after(line, "name");
    event.process = std::stol(text_after(line, "pid"));
    event.track = std::stol(text_after(line, "tid"));
    event.facts = line.substr(line.find("\"args\""));
    if (event.kind == "X") {
      event.begin = nanoseconds(text_after(line, "ts"));
      event.end = event.begin + nanoseconds(text_after(line, "dur"));
    }
    events.push_back(event);
  }
  return events;
}

bool has(const Event& event, const std::string& fact) { return event.facts.find(fact) != std::string::npos; }

// The slices of a rank's calls, in the order of the file.
std::map<long, std::vector<Event>> calls_by_process(const std::vector<Event>& events) {
  std::map<long, std::vector<Event>> calls;
  for (const Event& event : events)
    if (event.kind == "X" && event.track == 1) calls[event.process].push_back(event);
  return calls;
}

bool is_of(const Names& names, const Event& event) {
  return std::find(names.begin(), names.end(), event.name) != names.end();
}

const Names kSteps{"route", "send", "wait", "lay out", "sum"};
bool is_step(const Event& event) { return is_of(kSteps, event); }
bool is_wait(const Event& event) { return event.name.starts_with("rank "); }

template <class Wanted>
std::vector<Event> those(const std::vector<Event>& events, const Wanted& wanted) {
  std::vector<Event> found;
  std::copy_if(events.begin(), events.end(), std::back_inserter(found), wanted);
  return found;
}
Names names_of(const std::vector<Event>& events) {
  Names names;
  for (const Event& event : events) names.push_back(event.name);
  return names;
}
std::vector<Event> inside(const std::vector<Event>& events, const Event& outer) {
  return those(events, [&](const Event& event) { return event.begin >= outer.begin && event.end <= outer.end; });
}

// Calls without their steps and waits.
std::vector<Event> calls_in(const std::vector<Event>& events) {
  return those(events, [](const Event& event) { return !is_step(event) && !is_wait(event) && event.name != "check"; });
}
std::vector<Event> steps_of(const std::vector<Event>& events, const Event& call) {
  return inside(those(events, is_step), call);
}

void expect_one_after_the_other(const std::vector<Event>& events) {
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_LE(events[i].begin, events[i].end) << events[i].name;
    if (i == 0) continue;
    EXPECT_LE(events[i - 1].end, events[i].begin) << events[i - 1].name << ", " << events[i].name;
  }
}

void run_rounds(const conformance::Scenario& scenario, conformance::Form form, int rounds) {
  run_ranks(kRanks, [&](World& world) {
    Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
    for (int round = 0; round < rounds; ++round) conformance::run_round(exchange, scenario, form);
  });
}

const std::map<std::string, Names>& steps_by_call() {
  static const std::map<std::string, Names> steps{{"dispatch", {"route", "send", "wait", "lay out"}},
                                                  {"dispatch_async", {"route", "send"}},
                                                  {"dispatch_wait", {"wait", "lay out"}},
                                                  {"combine", {"wait", "send", "sum"}},
                                                  {"combine_async", {"wait", "send"}},
                                                  {"combine_wait", {"sum"}}};
  return steps;
}

void expect_rounds(const Trace& trace, const Names& round, int rounds) {
  const auto processes = calls_by_process(events_of(trace));
  ASSERT_EQ(processes.size(), kRanks);
  for (const auto& [process, events] : processes) {
    const std::vector<Event> calls = calls_in(events);
    Names expected;
    for (int i = 0; i < rounds; ++i) expected.insert(expected.end(), round.begin(), round.end());
    ASSERT_EQ(names_of(calls), expected) << "rank " << process % 10'000;
    expect_one_after_the_other(calls);
    expect_one_after_the_other(those(events, is_step));
    for (std::size_t i = 0; i < calls.size(); ++i) {
      EXPECT_EQ(names_of(steps_of(events, calls[i])), steps_by_call().at(calls[i].name)) << calls[i].name;
      const std::size_t number = i / round.size() + 1;
      EXPECT_TRUE(has(calls[i], "\"dispatch\":" + std::to_string(number))) << calls[i].facts;
    }
  }
}

TEST(Trace, HasEveryStepOfEveryRoundOnce) {
  Trace trace;
  run_rounds(scenario_of(), conformance::Form::one_call, 3);
  expect_rounds(trace, {"dispatch", "combine"}, 3);
}

TEST(Trace, HasTheStepsOfHalves) {
  Trace trace;
  run_rounds(scenario_of(), conformance::Form::split, 3);
  expect_rounds(trace, {"dispatch_async", "dispatch_wait", "combine_async", "combine_wait"}, 3);
}

// Rank 1 comes late to its second dispatch, so the others wait for it and name it.
TEST(Trace, NamesTheRankThatWasWaitedFor) {
  const conformance::Scenario scenario = scenario_of();
  Trace trace;
  run_ranks(kRanks, [&](World& world) {
    Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
    conformance::run_round(exchange, scenario, conformance::Form::one_call);
    if (world.rank() == 1) std::this_thread::sleep_for(milliseconds(60));
    conformance::run_round(exchange, scenario, conformance::Form::one_call);
  });
  for (const auto& [process, events] : calls_by_process(events_of(trace))) {
    if (process % 10'000 == 1) continue;
    const std::vector<Event> steps = those(events, is_step);
    const auto longest = std::max_element(
        steps.begin(), steps.end(), [](const Event& a, const Event& b) { return a.end - a.begin < b.end - b.begin; });
    EXPECT_EQ(longest->name, "wait");
    EXPECT_TRUE(has(*longest, "\"waited_ns\":{")) << longest->facts;
    EXPECT_GT(std::stol(text_after(longest->facts, "rank 1")), 10'000'000);
    const std::vector<Event> waits = inside(those(events, is_wait), *longest);
    ASSERT_FALSE(waits.empty());
    EXPECT_TRUE(std::any_of(waits.begin(), waits.end(), [](const Event& wait) {
      return wait.name == "rank 1" && has(wait, "routing table") && wait.end - wait.begin > 10'000'000;
    }));
  }
}

// What the slices of a step's waits come to is what the step says.
TEST(Trace, AddsWaitsUpByRank) {
  Trace trace;
  run_rounds(scenario_of(3), conformance::Form::one_call, 4);
  const std::vector<Event> events = events_of(trace);
  std::map<std::string, long> in_steps, in_waits;
  for (const Event& event : events) {
    if (event.kind != "X") continue;
    if (is_wait(event)) in_waits[event.name] += std::stol(text_after(event.facts, "ns"));
    for (int rank = 0; is_step(event) && rank < kRanks; ++rank) {
      const std::string name = "rank " + std::to_string(rank);
      if (has(event, "\"" + name + "\":")) in_steps[name] += std::stol(text_after(event.facts, name));
    }
  }
  EXPECT_EQ(in_steps, in_waits);
}

TEST(Trace, OfAnAbsentRankIsWhole) {
  conformance::Scenario scenario = scenario_of();
  scenario.settings.options.deadline = milliseconds(150);
  Trace trace;
  EXPECT_THROW(run_ranks(kRanks,
                         [&](World& world) {
                           Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
                           conformance::RankRound round(scenario, world.rank());
                           if (world.rank() == 2) std::this_thread::sleep_for(milliseconds(600));
                           if (world.rank() != 2) exchange.dispatch(round.in, round.out);
                         }),
               PeerMissing);
  const auto processes = calls_by_process(events_of(trace));
  ASSERT_EQ(processes.size(), 2u);
  for (const auto& [process, events] : processes) {
    const std::vector<Event> calls = calls_in(events);
    ASSERT_EQ(names_of(calls), Names{"dispatch"});
    EXPECT_TRUE(has(calls[0], "\"threw\":true")) << calls[0].facts;
    EXPECT_EQ(names_of(steps_of(events, calls[0])), (Names{"route", "send", "wait"}));
    expect_one_after_the_other(those(events, is_step));
    const std::vector<Event> failed = those(events, [](const Event& event) { return has(event, "\"failed\":true"); });
    ASSERT_EQ(failed.size(), 1u);
    EXPECT_EQ(failed[0].name, "rank 2");
    EXPECT_LE(failed[0].end, calls[0].end);
  }
}

TEST(Trace, RecordsNothingWhenItIsOff) {
  EXPECT_EQ(recording_log(), nullptr);
  Trace trace;
  EXPECT_NE(recording_log(), nullptr);
  trace.stop();
  trace.stop();
  EXPECT_EQ(recording_log(), nullptr);
  run_rounds(scenario_of(), conformance::Form::one_call, 1);
  EXPECT_EQ(trace.events(), "");
  EXPECT_EQ(trace.json(), "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n\n]}\n");
}

TEST(Trace, IsOneAtATime) {
  Trace first;
  try {
    const Trace second;
    FAIL() << "two record";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::out_of_order);
  }
  EXPECT_NE(recording_log(), nullptr);
  first.stop();
  const Trace third;
}

TEST(Trace, CountsCallsPastTheMost) {
  Trace trace(5);
  run_rounds(scenario_of(), conformance::Form::one_call, 3);
  std::size_t calls = 0;
  for (const auto& [process, events] : calls_by_process(events_of(trace)))
    calls += those(events, [](const Event& event) { return !is_step(event) && !is_wait(event); }).size();
  EXPECT_EQ(calls, 5u);
  EXPECT_NE(trace.events().find("more calls were left out"), std::string::npos);
}

TEST(Trace, SaysWhyItCannotBeWritten) {
  const Trace trace;
  try {
    trace.write("/nowhere/trace.json");
    FAIL() << "it was written";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::io);
    EXPECT_STREQ(error.what(), "trace file /nowhere/trace.json: cannot be written: No such file or directory");
  }
}

}  // namespace
}  // namespace ferry
