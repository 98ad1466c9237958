// Open files that travel between ranks: pipes here, memory of a GPU elsewhere.
#include "net/socket/descriptor_channel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <thread>

#include "ferry/error.h"

namespace ferry::net {
namespace {

constexpr std::chrono::milliseconds kLong{20'000};

// A pipe that holds a number.
struct Numbered {
  explicit Numbered(int number) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(pipe(ends), 0);
    read_end.reset(ends[0]);
    const Descriptor write_end(ends[1]);
    for (int copy = 0; copy < 16; ++copy) EXPECT_EQ(write(ends[1], &number, sizeof number), 4);
  }
  Descriptor read_end;
};

int number_in(const Descriptor& descriptor) {
  int number = -1;
  return descriptor && read(descriptor.get(), &number, sizeof number) == 4 ? number : -1;
}

TEST(DescriptorChannel, GivesEveryRankTheDescriptorOfEach) {
  constexpr int kRanks = 5;
  const std::uint64_t token = random_number();
  std::vector<std::unique_ptr<DescriptorChannel>> channels;
  for (int rank = 0; rank < kRanks; ++rank)
    channels.push_back(std::make_unique<DescriptorChannel>(rank, kRanks, token));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      for (std::uint64_t turn = 1; turn <= 20; ++turn) {  // nothing keeps the ranks together in between
        const Numbered mine(rank + 100 * static_cast<int>(turn));
        const auto descriptors = channels[static_cast<std::size_t>(rank)]->all_to_all(mine.read_end, turn, {}, kLong);
        for (int peer = 0; peer < kRanks; ++peer)
          EXPECT_EQ(number_in(descriptors[static_cast<std::size_t>(peer)]),
                    peer == rank ? -1 : peer + 100 * static_cast<int>(turn));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(DescriptorChannel, CrossesProcesses) {
  const std::uint64_t token = random_number();
  DescriptorChannel channel(0, 2, token);
  int ready[2] = {-1, -1};
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    int got = -1;
    {
      DescriptorChannel other(1, 2, token);
      if (write(ready[1], "1", 1) != 1) _exit(2);
      const Numbered mine(11);
      got = number_in(other.all_to_all(mine.read_end, 1, {}, kLong)[0]);
    }
    _exit(got == 10 ? 0 : 1);
  }
  const Numbered mine(10);
  char there = 0;
  EXPECT_EQ(read(ready[0], &there, 1), 1);
  const std::vector<Descriptor> descriptors = channel.all_to_all(mine.read_end, 1, {}, kLong);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(number_in(descriptors[1]), 11);
}

TEST(DescriptorChannel, NamesTheRankThatSendsNothingAndSkipsMaskedOnes) {
  const std::uint64_t token = random_number();
  DescriptorChannel channel(0, 3, token);
  DescriptorChannel silent(1, 3, token);
  const Numbered mine(1);
  try {
    channel.all_to_all(mine.read_end, 1, {false, false, true}, std::chrono::milliseconds(50));
    ADD_FAILURE() << "rank 1 sent nothing";
  } catch (const PeerMissing& error) {
    EXPECT_EQ(error.record().missing_rank, 1);
  }
  const auto none = channel.all_to_all(mine.read_end, 2, {false, true, true}, kLong);
  for (const Descriptor& descriptor : none) EXPECT_FALSE(descriptor);
}

TEST(DescriptorChannel, RefusesANameThatIsTaken) {
  const DescriptorChannel first(0, 2, 77);
  EXPECT_THROW(DescriptorChannel(0, 2, 77), Error);
}

}  // namespace
}  // namespace ferry::net
