// World::abort on threads: whoever waits for the rank learns it at once, wherever it waits. The deadlines here are an
// hour, so a wait that only its deadline ends does not end in time for the test.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "conformance/rounds/rank_round.h"
#include "ferry/exchange.h"

namespace ferry {
namespace {

using conformance::RankRound;
using conformance::Scenario;

constexpr int kRanks = 3;
constexpr int kFailing = 1;
constexpr std::chrono::hours kForever{1};

Scenario scenario_of() {
  conformance::ScenarioSettings settings;
  settings.shape = {kRanks, 6, 2, 5, 32};
  settings.options = conformance::options_for("mxfp8");
  settings.options.deadline = settings.options.set_up_deadline = kForever;
  return conformance::make_scenario(settings);
}

// `call` must throw Aborted that names `missing` and says `reason`.
void expect_aborted(int rank, int missing, const std::string& reason, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "rank " << rank << ": no error";
  } catch (const Aborted& error) {
    EXPECT_EQ(error.kind(), ErrorKind::aborted);
    EXPECT_EQ(error.record().missing_rank, missing) << error.what();
    EXPECT_EQ(error.record().my_rank, rank);
    EXPECT_EQ(error.reason(), reason) << error.what();
    EXPECT_NE(std::string(error.what()).find("rank " + std::to_string(missing)), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank " << rank << ": " << error.what();
  }
}

// `call` must throw what `refusing` was refused for: the rank that refuses its own options tells the others.
void expect_refused(int rank, int refusing, const std::string& reason, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "rank " << rank << ": no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("rank " + std::to_string(refusing)), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
  }
}

TEST(Abort, EndsABarrierAtOnce) {
  run_ranks(kRanks, [](World& world) {
    if (world.rank() == kFailing) return world.abort("no such file: weights");
    expect_aborted(world.rank(), kFailing, "no such file: weights", [&] { world.barrier({}, kForever); });
  });
}

TEST(Abort, EndsTheMakingOfAnExchange) {
  const Scenario scenario = scenario_of();
  run_ranks(kRanks, [&](World& world) {
    if (world.rank() == kFailing) return world.abort("no memory");
    expect_aborted(world.rank(), kFailing, "no memory",
                   [&] { Exchange exchange(world, scenario.settings.shape, scenario.settings.options); });
  });
}

TEST(Abort, EndsARoundAndRefusesEveryCallAfterIt) {
  const Scenario scenario = scenario_of();
  run_ranks(kRanks, [&](World& world) {
    Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
    RankRound round(scenario, world.rank());
    exchange.dispatch(round.in, round.out);
    if (world.rank() == kFailing) world.abort("my expert kernel crashed");
    const auto refused = [&](const std::function<void()>& call) {
      expect_aborted(world.rank(), kFailing, "my expert kernel crashed", call);
    };
    refused([&] { exchange.combine(round.combine_in, round.combine_out); });
    refused([&] { exchange.dispatch(round.in, round.out); });
    refused([&] { exchange.check(); });
    refused([&] { world.barrier(); });
  });
}

TEST(Abort, ComesFromAnyThreadAndEndsTheCallThatItsOwnRankIsIn) {
  const Scenario scenario = scenario_of();
  run_ranks(kRanks, [&](World& world) {
    Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
    RankRound round(scenario, world.rank());
    std::thread watch;
    if (world.rank() == 0) return;  // nobody comes: all others wait for this rank
    if (world.rank() == kFailing) watch = std::thread([&] { world.abort("the watch has had enough"); });
    expect_aborted(world.rank(), kFailing, "the watch has had enough", [&] { exchange.dispatch(round.in, round.out); });
    if (watch.joinable()) watch.join();
  });
}

TEST(Abort, CountsForNothingWhereTheRankIsMasked) {
  Scenario scenario = scenario_of();
  run_ranks(kRanks, [&](World& world) {
    if (world.rank() == kFailing) return world.abort("away");
    expect_aborted(world.rank(), kFailing, "away", [&] { world.barrier({}, kForever); });
    RankMask mask(kRanks);
    mask[kFailing] = true;
    world.barrier(mask, kForever);
    ExchangeOptions options = scenario.settings.options;
    options.mask = mask;
    Exchange survivors(world, scenario.settings.shape, options);
    RankRound round(scenario, world.rank());
    survivors.dispatch(round.in, round.out);
    survivors.combine(round.combine_in, round.combine_out);
  });
}

TEST(Abort, NamesTheRankForWhichARankGivesUp) {
  run_ranks(kRanks, [](World& world) {
    if (world.rank() == kFailing) return world.abort("it did not come", 2);
    expect_aborted(world.rank(), 2, "it did not come", [&] { world.barrier({}, kForever); });
  });
}

// The rank for which it gives up is masked by now: then it is itself the one that leaves.
TEST(Abort, NamesItsOwnRankWhereTheOneThatItNamesIsMasked) {
  const Scenario scenario = scenario_of();
  run_ranks(kRanks, [&](World& world) {
    Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
    RankRound round(scenario, world.rank());
    exchange.dispatch(round.in, round.out);
    exchange.combine(round.combine_in, round.combine_out);
    if (world.rank() == 2) return;  // it leaves between rounds
    exchange.add_to_mask({false, false, true});
    if (world.rank() == kFailing) return world.abort("it did not come", 2);
    expect_aborted(0, kFailing, "it did not come", [&] { exchange.dispatch(round.in, round.out); });
  });
}

TEST(Abort, OfARankCountsOnce) {
  run_ranks(kRanks, [](World& world) {
    if (world.rank() == kFailing) {
      world.abort("first");
      world.abort("second");
    }
    expect_aborted(world.rank(), kFailing, "first", [&] { world.barrier({}, kForever); });
  });
}

// What run_ranks throws where `body` fails on rank kFailing.
std::string cause_of(const std::function<void(World&)>& body) {
  try {
    run_ranks(kRanks, body);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST(RunRanks, ReleasesTheOthersWhereARankThrowsBeforeSetUp) {
  EXPECT_EQ(cause_of([](World& world) {
              if (world.rank() == kFailing) throw std::runtime_error("no such file: weights");
              world.barrier({}, kForever);
            }),
            "no such file: weights");
  const Scenario scenario = scenario_of();
  EXPECT_EQ(cause_of([&](World& world) {
              if (world.rank() == kFailing) throw std::runtime_error("no such file: weights");
              Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
            }),
            "no such file: weights");
}

// The words of its error, also where it is the library that refuses what this rank alone asks for, and where another
// one comes to the call later.
TEST(RunRanks, TellsTheOthersWhyARankThrewBeforeSetUp) {
  const Scenario scenario = scenario_of();
  const Shape& shape = scenario.settings.shape;
  Shape impossible = shape;
  impossible.hidden = 100;
  const std::string why = cause_of([&](World& world) { Exchange(world, impossible, scenario.settings.options); });
  EXPECT_NE(why.find("100"), std::string::npos) << why;
  for (const bool refused : {false, true}) {
    const std::string reason = refused ? why : "no such file: weights";
    EXPECT_EQ(cause_of([&](World& world) {
                if (world.rank() == kFailing && !refused) throw std::runtime_error(reason);
                if (world.rank() == kFailing) Exchange(world, impossible, scenario.settings.options);
                if (world.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(50));
                const auto make = [&] { const Exchange exchange(world, shape, scenario.settings.options); };
                if (refused)
                  expect_refused(world.rank(), kFailing, reason, make);
                else
                  expect_aborted(world.rank(), kFailing, reason, make);
                expect_aborted(world.rank(), kFailing, reason, [&] { world.barrier({}, kForever); });
              }),
              reason);
  }
}

// A rank that leaves without a word, as a thread whose error nobody turns into an abort, is waited for.
TEST(SilentRank, IsMissingWhenTheSetUpDeadlineIsOver) {
  Scenario scenario = scenario_of();
  scenario.settings.options.set_up_deadline = std::chrono::milliseconds(200);
  const auto start = std::chrono::steady_clock::now();  // of all: the first rank to give up tells the others
  run_ranks(kRanks, [&](World& world) {
    if (world.rank() == kFailing) return;
    try {
      const Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
      ADD_FAILURE() << "no error";
    } catch (const PeerMissing& error) {
      EXPECT_EQ(error.kind(), ErrorKind::peer_missing) << error.what();
      EXPECT_EQ(error.record().missing_rank, kFailing) << error.what();
      EXPECT_EQ(error.record().operation, Operation::set_up) << error.what();
      EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(190));
    }
  });
}

// In a round that is open, and between rounds.
TEST(RunRanks, ReleasesTheOthersWhereARankThrowsInARoundOrAfterIt) {
  const Scenario scenario = scenario_of();
  for (const int fails_at : {0, 1, 2, 3})
    EXPECT_EQ(cause_of([&](World& world) {
                const auto fail = [&](int at) {
                  if (world.rank() == kFailing && at == fails_at) throw std::runtime_error("my expert kernel crashed");
                };
                Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
                for (;;) {
                  RankRound round(scenario, world.rank());
                  exchange.dispatch_async(round.in);
                  fail(0);
                  exchange.dispatch_wait(round.out);
                  fail(1);
                  exchange.combine_async(round.combine_in);
                  fail(2);
                  exchange.combine_wait(round.combine_out);
                  fail(3);
                }
              }),
              "my expert kernel crashed")
        << fails_at;
}

// The others fail first: their errors are consequences.
TEST(RunRanks, RethrowsTheCauseWhereTheOthersFailBeforeIt) {
  const std::string missing = cause_of([](World& world) {
    if (world.rank() != kFailing) world.barrier({}, std::chrono::milliseconds(1000));
  });
  EXPECT_NE(missing.find("rank 1 did not come"), std::string::npos) << missing;
  EXPECT_EQ(cause_of([](World& world) {
              if (world.rank() != kFailing) return world.barrier({}, std::chrono::milliseconds(1000));
              std::this_thread::sleep_for(std::chrono::milliseconds(1500));
              throw std::runtime_error("too late");
            }),
            "too late");
}

TEST(RunRanks, ReleasesTheOthersWhereARankThrowsNoStandardException) {
  EXPECT_THROW(run_ranks(kRanks,
                         [](World& world) {
                           if (world.rank() == kFailing) throw 7;  // NOLINT(hicpp-exception-baseclass)
                           world.barrier({}, kForever);
                         }),
               int);
}

// A rank destroys its exchange in a round that is open. It has sent all of its dispatch, so the others have their rows.
TEST(DestroyedExchange, IsTheErrorOfThoseWhoWaitForMoreOfIt) {
  const Scenario scenario = scenario_of();
  run_ranks(kRanks, [&](World& world) {
    Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
    RankRound round(scenario, world.rank());
    exchange.dispatch_async(round.in);
    if (world.rank() == kFailing) return;
    exchange.dispatch_wait(round.out);
    round.check_rows();
    try {
      exchange.combine(round.combine_in, round.combine_out);
      ADD_FAILURE() << "no error";
    } catch (const Aborted& error) {
      EXPECT_EQ(error.record().missing_rank, kFailing) << error.what();
      EXPECT_EQ(error.record().absence, Absence::left);
      EXPECT_NE(std::string(error.what()).find("destroyed its exchange"), std::string::npos) << error.what();
    }
  });
}

// Nobody misses anything where all leave a round without its combine.
TEST(DestroyedExchange, DisturbsNobodyWhoHasAllOfIt) {
  const Scenario scenario = scenario_of();
  for (int turn = 0; turn < 100; ++turn)
    run_ranks(kRanks, [&](World& world) {
      Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
      RankRound round(scenario, world.rank());
      exchange.dispatch(round.in, round.out);
      round.check_rows();
      if (turn % 2 == 0) return;
      exchange.combine_async(round.combine_in);
      if (world.rank() == kFailing) return;
      exchange.combine_wait(round.combine_out);
      round.check_tokens();
    });
}

}  // namespace
}  // namespace ferry
