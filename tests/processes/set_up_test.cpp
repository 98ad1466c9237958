// How a world of processes is made, and what is refused; the ranks are threads here.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "conformance/rounds/rank_round.h"
#include "cpu/fabric/shared_heap.h"
#include "ferry/error.h"
#include "ferry/worlds/process_world.h"
#include "support/bootstrap_ranks.h"

namespace ferry::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::chrono::milliseconds kSoon{1500};

ProcessOptions options_at(std::uint16_t port, int rank, int size) {
  ProcessOptions options;
  options.place.address = "127.0.0.1:" + std::to_string(port);
  options.place.rank = options.place.local_rank = rank;
  options.place.size = size;
  return options;
}

TEST(ProcessWorlds, SayWhatTheyAre) {
  const auto world = make_process_world(options_at(free_port(), 0, 1));
  EXPECT_EQ(world->kind(), WorldKind::processes);
  EXPECT_STREQ(world->backend(), "processes");
  EXPECT_TRUE(world->is_direct(0));
  EXPECT_FALSE(world->has_remote_ranks());
  EXPECT_TRUE(world->capabilities().function_hooks);
  EXPECT_FALSE(world->capabilities().gpus);
}

TEST(ProcessWorlds, RefuseRanksThatDifferInTheirNumber) {
  const std::uint16_t port = free_port();
  const auto errors = errors_on_ranks(3, [&](int rank) {
    ProcessOptions options = options_at(port, rank, rank == 2 ? 4 : 3);
    options.deadline = kSoon;
    make_process_world(options);
  });
  EXPECT_THAT(errors[2], AllOf(HasSubstr("given 4 ranks"), HasSubstr("given 3")));
  EXPECT_THAT(errors[0], AllOf(HasSubstr("rank 2 did not come"), HasSubstr("rank 2 of 4")));
  EXPECT_THAT(errors[1], HasSubstr("rank 2 did not come"));
}

TEST(ProcessWorlds, RefuseTwoProcessesOfOneRank) {
  const std::uint16_t port = free_port();
  const auto errors = errors_on_ranks(3, [&](int process) {
    ProcessOptions options = options_at(port, process == 2 ? 1 : process, 3);
    options.deadline = kSoon;
    make_process_world(options);
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("rank 2 did not come"), HasSubstr("a second process says that it is rank 1")));
  EXPECT_THAT(errors[1] + errors[2], AllOf(HasSubstr("another process with this rank"), HasSubstr("did not come")));
}

TEST(ProcessWorlds, RefuseMoreRanksThanANodeHas) {
  const auto errors = errors_on_ranks(1, [](int) { make_process_world(options_at(1, 0, kMaxRanksPerNode + 1)); });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("73 ranks"), HasSubstr("1 to 72")));
}

// One rank alone sees that its memory cannot be had; all say so, and go on.
TEST(ProcessWorlds, FailTogetherWhereOneRankHasNoMemory) {
  EXPECT_THAT([] { cpu::map_shared_memory(cpu::make_shared_memory(4096), 8192); },
              testing::ThrowsMessage<Error>(AllOf(HasSubstr("shares 4096 bytes"), HasSubstr("8192"))));
  EXPECT_THAT([] { cpu::make_shared_memory(std::size_t{1} << 63); },
              testing::ThrowsMessage<Error>(HasSubstr("max_tokens")));
}

std::size_t open_files() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}
std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:ferry") != std::string::npos ? 1 : 0;
  return count;
}

TEST(ProcessWorlds, LeaveNothingOpen) {
  conformance::ScenarioSettings settings;
  settings.shape = {.ranks = 3, .experts = 9, .top_k = 3, .max_tokens = 9, .hidden = 64};
  const conformance::Scenario scenario = make_scenario(settings);
  const std::size_t files = open_files();
  for (int repeat = 0; repeat < 20; ++repeat) {
    const std::uint16_t port = free_port();
    const auto errors = errors_on_ranks(3, [&](int rank) {
      const auto world = make_process_world(options_at(port, rank, 3));
      Exchange exchange(*world, settings.shape, settings.options);
      run_round(exchange, scenario, conformance::Form::split);
      EXPECT_GE(mappings(), 3u);
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
  EXPECT_EQ(open_files(), files);
  EXPECT_EQ(mappings(), 0u);
}

}  // namespace
}  // namespace ferry::test
