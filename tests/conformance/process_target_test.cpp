// How a case ends on processes: all learn of failures, and of cases that the world cannot run. Threads play processes.
#include "conformance/target/process_target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "conformance/suite.h"
#include "ferry/exchange.h"

namespace ferry::conformance {
namespace {

constexpr int kProcesses = 3;

// A thread world's end without handles.
class NoHandles final : public ProcessWorld {
 public:
  explicit NoHandles(std::unique_ptr<World> world) : world_(std::move(world)) {}
  WorldKind kind() const override { return WorldKind::other; }
  WorldCapabilities capabilities() const override { return {.handles = false}; }
  const char* backend() const override { return "no_handles"; }
  int rank() const override { return world_->rank(); }
  int size() const override { return world_->size(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const RankMask& mask,
                  std::chrono::milliseconds deadline) override {
    world_->all_gather(mine, all, mask, deadline);
  }
  std::unique_ptr<ExchangeSteps> make_steps(const Shape&, const ExchangeOptions&, const HeapMap&) override {
    throw std::logic_error("no case that needs handles makes an exchange here");
  }
  bool is_direct(int) const override { return true; }
  void send(std::span<const std::byte>, int, std::chrono::milliseconds) override {}
  void receive(std::span<std::byte>, int, std::chrono::milliseconds) override {}

 private:
  std::unique_ptr<World> world_;
};

std::vector<std::unique_ptr<ProcessWorld>> make_worlds(int ranks) {
  std::vector<std::unique_ptr<ProcessWorld>> worlds;
  for (std::unique_ptr<World>& world : make_thread_worlds(ranks))
    worlds.push_back(std::make_unique<NoHandles>(std::move(world)));
  return worlds;
}

std::string ending_of(const std::function<void()>& body) {
  try {
    body();
    return "ok";
  } catch (const Skipped& skipped) {
    return std::string("skipped: ") + skipped.what();
  } catch (const std::exception& failure) {
    return std::string("failed: ") + failure.what();
  }
}

// How `run` ends in each process.
std::vector<std::string> endings(int ranks, const std::function<void(const Target&)>& run) {
  const std::vector<std::unique_ptr<ProcessWorld>> all = make_worlds(kProcesses);
  std::vector<std::unique_ptr<ProcessWorld>> of_case = make_worlds(ranks);
  std::vector<std::string> endings(kProcesses);
  std::vector<std::jthread> threads;
  for (std::size_t process = 0; process < all.size(); ++process)
    threads.emplace_back([&, process] {
      const auto make = [&, process](int) { return process < of_case.size() ? std::move(of_case[process]) : nullptr; };
      const Target target = process_target({"no_handles", all[process].get(), make});
      endings[process] = ending_of([&] { run(target); });
    });
  threads.clear();
  return endings;
}

TEST(ProcessTarget, SkipsWhatNeedsHandlesOnAllProcesses) {
  for (const Case& each : all_cases()) {
    if (each.name != "handles/two_ranks_exact") continue;
    EXPECT_THAT(endings(2, each.run), testing::Each("skipped: the exchanges of this world have no handles"));
    return;
  }
  FAIL() << "no such case";
}

TEST(ProcessTarget, FailsWhereOneProcessFails) {
  const auto run = [](const Target& target) {
    target.run_ranks(2, [](World& world) {
      if (world.rank() == 1) throw Failure(1, "here", "this", "that");
      throw Skipped("not this one");
    });
  };
  EXPECT_THAT(endings(2, run), testing::ElementsAre(testing::StartsWith("failed: process 1: rank 1, here"),
                                                    testing::StartsWith("failed: rank 1, here"),
                                                    testing::StartsWith("failed: process 1: rank 1, here")));
}

}  // namespace
}  // namespace ferry::conformance
