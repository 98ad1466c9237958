// Set-up calls of a world stay in step: what fails on one rank fails on all, whatever masks they have, and the calls
// after it are those of all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "conformance/rounds/rank_round.h"
#include "exchange/agreement/together.h"
#include "ferry/exchange.h"

namespace ferry {
namespace {

using conformance::Form;
using conformance::RankRound;
using conformance::Scenario;
using std::chrono::milliseconds;

constexpr int kRanks = 3;
constexpr milliseconds kLong{20'000};

Scenario scenario_of() {
  conformance::ScenarioSettings settings;
  settings.shape = {kRanks, 6, 2, 5, 32};
  settings.options = conformance::options_for("mxfp8");
  settings.options.deadline = settings.options.set_up_deadline = kLong;
  return conformance::make_scenario(settings);
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void expect_a_good_exchange(World& world, const Scenario& scenario) {
  Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
  conformance::run_round(exchange, scenario, Form::one_call);
}

// Ranks 0 and 2 mask each other, and rank 1, which knows neither, may still wait when both have left.
TEST(SetUpCalls, WaitForAllThatTheirOwnMaskLeavesIn) {
  run_ranks(kRanks, [](World& world) {
    RankMask mask(kRanks);
    if (world.rank() != 1) mask[static_cast<std::size_t>(2 - world.rank())] = true;
    for (int i = 0; i < 5; ++i) {
      if (world.rank() == 2) std::this_thread::sleep_for(milliseconds(10));
      EXPECT_EQ(error_of([&] { world.barrier(mask, kLong); }), "") << "rank " << world.rank();
    }
  });
}

TEST(SetUpCalls, FailOnAllRanksWhereOneHasNoMemory) {
  run_ranks(kRanks, [](World& world) {
    const auto allocate = [&] {
      if (world.rank() == 1) throw std::bad_alloc();
    };
    const std::string error = error_of([&] { together(world, allocate, {}, kLong); });
    EXPECT_THAT(error, testing::StartsWith("rank 1: ")) << "rank " << world.rank();
    EXPECT_EQ(error_of([&] { world.barrier({}, kLong); }), "");
  });
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they map more than any limit
// While it lives, this process may map so many bytes more.
class AddressSpace {
 public:
  explicit AddressSpace(std::size_t bytes) {
    getrlimit(RLIMIT_AS, &before_);
    const rlimit less{mapped_bytes() + bytes, before_.rlim_max};
    setrlimit(RLIMIT_AS, &less);
  }
  ~AddressSpace() { setrlimit(RLIMIT_AS, &before_); }
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

 private:
  static std::size_t mapped_bytes() {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  }

  rlimit before_{};
};

TEST(SetUpCalls, GoOnWhereTheMemoryOfOneRankDoesNotFit) {
  const Shape large{kRanks, 6, 2, 4096, 4096};
  const Scenario scenario = scenario_of();
  const std::size_t bytes = memory_use(large, scenario.settings.options).total;
  const auto worlds = make_thread_worlds(kRanks);
  std::vector<std::string> errors(kRanks);
  {
    const AddressSpace two_heaps(bytes * 5 / 2);
    run_worlds(worlds, [&](World& world) {
      errors[static_cast<std::size_t>(world.rank())] =
          error_of([&] { const Exchange exchange(world, large, scenario.settings.options); });
    });
  }
  EXPECT_THAT(errors, testing::Each(testing::HasSubstr("make max_tokens smaller")));
  run_worlds(worlds, [&](World& world) { expect_a_good_exchange(world, scenario); });
}
#endif

// Rank 0 alone has passed a deadline: the others learn it when all give memory back, and make the next exchange
// together.
TEST(SetUpCalls, ReleaseAnExchangeThatHasEndedOnOneRank) {
  for (const bool restores : {false, true}) {
    const Scenario scenario = scenario_of();
    run_ranks(kRanks, [&](World& world) {
      {
        Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
        RankRound round(scenario, world.rank());
        CallOptions hurried;
        hurried.deadline = milliseconds(20);
        if (world.rank() == 0) {
          EXPECT_NE(error_of([&] { exchange.dispatch(round.in, round.out, hurried); }), "");
        }
        world.barrier({}, kLong);
        try {
          restores ? exchange.restore() : exchange.release();
          ADD_FAILURE() << "rank " << world.rank() << ": no error";
        } catch (const PeerMissing& error) {
          EXPECT_EQ(error.record().my_rank, world.rank());
          EXPECT_EQ(error.record().reported_by, 0);
        }
      }
      expect_a_good_exchange(world, scenario);
    });
  }
}

}  // namespace
}  // namespace ferry
