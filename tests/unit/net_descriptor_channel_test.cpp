// Open files that travel between ranks: pipes here, memory of a GPU elsewhere.
#include "net/socket/descriptor_channel.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "ferry/error.h"
#include "support/open_files.h"

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

// Sends from outside of a channel to one of its ranks. Whether the queue took it.
class Sender {
 public:
  Sender(std::uint64_t token, int rank) {
    name_.sun_family = AF_UNIX;
    const std::string text = fmt::format("ferry-{:016x}-{}", token, rank);
    std::memcpy(name_.sun_path + 1, text.data(), text.size());
    length_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  }
  bool send(std::span<const std::byte> bytes, std::span<const int> descriptors = {}) {
    iovec body{const_cast<std::byte*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) char room[CMSG_SPACE(2 * sizeof(int))] = {};
    msghdr message{};
    message.msg_name = &name_;
    message.msg_namelen = length_;
    message.msg_iov = &body;
    message.msg_iovlen = 1;
    if (!descriptors.empty()) {
      auto* control = reinterpret_cast<cmsghdr*>(room);
      control->cmsg_level = SOL_SOCKET;
      control->cmsg_type = SCM_RIGHTS;
      control->cmsg_len = CMSG_LEN(descriptors.size_bytes());
      std::memcpy(CMSG_DATA(control), descriptors.data(), descriptors.size_bytes());
      message.msg_control = room;
      message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    }
    return sendmsg(socket_.get(), &message, MSG_NOSIGNAL) >= 0;
  }
  int send_all() {
    int sent = 0;
    while (send(std::as_bytes(std::span("junk")))) ++sent;
    return sent;
  }

 private:
  Descriptor socket_{::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  sockaddr_un name_{};
  socklen_t length_ = 0;
};

// One sender may run out of room of its own first.
void fill_queue(std::uint64_t token, int rank) {
  while (Sender(token, rank).send_all() > 0) continue;
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

TEST(DescriptorChannel, TwoRanksWhoseQueuesAreFullServeEachOther) {
  const std::uint64_t token = random_number();
  DescriptorChannel channels[] = {DescriptorChannel(0, 2, token), DescriptorChannel(1, 2, token)};
  for (int rank = 0; rank < 2; ++rank) fill_queue(token, rank);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      const Numbered mine(rank);
      EXPECT_NO_THROW(EXPECT_EQ(
          number_in(channels[rank].all_to_all(mine.read_end, 1, {}, kLong)[static_cast<std::size_t>(1 - rank)]),
          1 - rank));
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(DescriptorChannel, NamesTheRankWhoseQueueStaysFull) {
  const std::uint64_t token = random_number();
  DescriptorChannel channel(0, 3, token);
  DescriptorChannel takes(1, 3, token);
  DescriptorChannel takes_nothing(2, 3, token);
  fill_queue(token, 2);
  const Numbered mine(1);
  int looked_at = -1;
  try {
    channel.all_to_all(mine.read_end, 1, {}, std::chrono::milliseconds(500), [&](int peer) { looked_at = peer; });
    ADD_FAILURE() << "rank 2 took nothing";
  } catch (const PeerMissing& error) {
    EXPECT_EQ(error.record().missing_rank, 2);
    EXPECT_EQ(looked_at, 2);
  }
}

TEST(DescriptorChannel, SaysThatThisProcessCanOpenNoMoreFiles) {
  const std::uint64_t token = random_number();
  DescriptorChannel channel(0, 2, token);
  DescriptorChannel other(1, 2, token);
  const Numbered mine(1);
  EXPECT_THROW(other.all_to_all(mine.read_end, 1, {}, std::chrono::milliseconds(1)), PeerMissing);  // it has sent
  const test::NoMoreFiles no_more;
  try {
    channel.all_to_all(mine.read_end, 1, {}, kLong);
    ADD_FAILURE() << "a descriptor was opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::system);
    EXPECT_THAT(error.what(), testing::HasSubstr("ulimit -n"));
  }
}

TEST(DescriptorChannel, ClosesAllThatAStrangerSends) {
  const std::uint64_t token = random_number();
  DescriptorChannel channel(0, 2, token);
  int ends[2] = {-1, -1};
  ASSERT_EQ(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
  const Descriptor read_end(ends[0]);
  {
    const Descriptor write_end(ends[1]);
    const int twice[] = {write_end.get(), write_end.get()};
    ASSERT_TRUE(Sender(token, 0).send(std::as_bytes(std::span("junk")), twice));
  }
  const Numbered mine(1);
  EXPECT_THROW(channel.all_to_all(mine.read_end, 1, {}, std::chrono::milliseconds(1)), PeerMissing);
  char byte = 0;
  EXPECT_EQ(read(read_end.get(), &byte, 1), 0) << "nobody holds the other end";
}

TEST(DescriptorChannel, RefusesANameThatIsTaken) {
  const DescriptorChannel first(0, 2, 77);
  EXPECT_THROW(DescriptorChannel(0, 2, 77), Error);
}

}  // namespace
}  // namespace ferry::net
