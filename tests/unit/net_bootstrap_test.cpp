// Processes that meet by TCP, here as threads: all_gather, missing ranks, strangers, and what is refused.
#include "net/bootstrap.h"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "ferry/error.h"
#include "net/reception.h"
#include "support/bootstrap_ranks.h"

namespace ferry::net {
namespace {

using std::chrono::milliseconds;
using test::errors_on_ranks;
using test::free_address;
using test::gather;
using testing::HasSubstr;

constexpr milliseconds kLong{20'000};
constexpr milliseconds kShort{300};

Job job(const HostPort& address, int rank, int size, const std::string& name) {
  Job made;
  made.address = address;
  made.rank = rank;
  made.size = size;
  made.name = name;
  return made;
}

// `absence`: why that rank did not come, as the error has it, where this rank saw it itself.
int missing_in(const std::function<void()>& call, std::optional<Absence> absence = {}) {
  try {
    call();
  } catch (const PeerMissing& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(error.record().missing_rank)));
    if (absence && error.record().reported_by == error.record().my_rank) {
      EXPECT_EQ(error.record().absence, *absence) << error.what();
    }
    return error.record().missing_rank;
  }
  return -1;
}

TEST(Bootstrap, GathersFromAllRanksAgainAndAgain) {
  for (const int ranks : {1, 2, 5, 9}) {
    const HostPort address = free_address();
    const auto errors = errors_on_ranks(ranks, [&](int rank) {
      Bootstrap bootstrap(job(address, rank, ranks, "job"), kLong);
      EXPECT_EQ(bootstrap.rank(), rank);
      EXPECT_EQ(bootstrap.size(), ranks);
      for (int turn = 0; turn < 50; ++turn) {
        const std::vector<int> all = gather(bootstrap, 100 * turn + rank);
        for (int peer = 0; peer < ranks; ++peer) EXPECT_EQ(all[static_cast<std::size_t>(peer)], 100 * turn + peer);
      }
    });
    EXPECT_THAT(errors, testing::Each("")) << ranks;
  }
}

TEST(Bootstrap, CarriesPartsThatNoSocketHoldsAtOnce) {
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  const HostPort address = free_address();
  const auto errors = errors_on_ranks(3, [&](int rank) {
    Bootstrap bootstrap(job(address, rank, 3, ""), kLong);
    const std::vector<std::byte> mine(kBytes, static_cast<std::byte>(rank + 1));
    std::vector<std::byte> all(3 * kBytes);
    bootstrap.all_gather(mine, all, {}, kLong);
    for (std::size_t i = 0; i < all.size(); i += 4099) ASSERT_EQ(all[i], static_cast<std::byte>(i / kBytes + 1));
  });
  EXPECT_THAT(errors, testing::Each(""));
}

TEST(Bootstrap, GivesAllRanksOneToken) {
  const HostPort address = free_address();
  std::vector<std::uint64_t> tokens(3);
  errors_on_ranks(3, [&](int rank) {
    tokens[static_cast<std::size_t>(rank)] = Bootstrap(job(address, rank, 3, ""), kLong).token();
  });
  EXPECT_NE(tokens[0], 0u);
  EXPECT_THAT(tokens, testing::Each(tokens[0]));
}

TEST(Bootstrap, NamesTheRankThatNeverStarts) {
  const HostPort address = free_address();
  for (const int missing : {0, 2}) {
    std::vector<int> named(4, -1);
    errors_on_ranks(4, [&](int rank) {
      if (rank == missing) return;
      named[static_cast<std::size_t>(rank)] =
          missing_in([&] { Bootstrap(job(address, rank, 4, ""), rank == 0 || missing == 0 ? kShort : kLong); });
    });
    for (int rank = 0; rank < 4; ++rank)
      EXPECT_EQ(named[static_cast<std::size_t>(rank)], rank == missing ? -1 : missing) << "rank " << rank;
  }
}

TEST(Bootstrap, NamesTheRankThatNeverStartsAtTheFirstDeadline) {
  constexpr milliseconds kDeadline{4000};
  const HostPort address = free_address();
  std::vector<int> named(3, -1);
  errors_on_ranks(2, [&](int rank) {
    if (rank == 0) pause(milliseconds(1200));  // rank 1 waits for its answer 1000 ms longer than its deadline
    named[static_cast<std::size_t>(rank)] = missing_in([&] { Bootstrap(job(address, rank, 3, ""), kDeadline); });
  });
  EXPECT_THAT(named, testing::ElementsAre(2, 2, -1));
}

// A rank that listens nowhere and ends when rank 0 has answered.
void come_and_end(const HostPort& address, int rank, int size) {
  const Deadline deadline(kLong);
  std::string why;
  Descriptor rank_0;
  while (!rank_0 && !deadline.has_passed()) rank_0 = connect_once(address, deadline, why);
  Hello hello;
  hello.milliseconds_left = 20'000;
  hello.rank = static_cast<std::int16_t>(rank);
  hello.size = static_cast<std::int16_t>(size);
  hello.port = free_address().port;
  std::byte answer[1];
  EXPECT_TRUE(send_all(rank_0, std::as_bytes(std::span(&hello, 1)), deadline));
  EXPECT_TRUE(receive_all(rank_0, answer, deadline));
}

// Rank 2 ends before it connects to rank 1. Rank 0 sees that and ends, too.
TEST(Bootstrap, NamesTheRankThatEndsWhileItJoins) {
  const HostPort address = free_address();
  std::vector<int> named(3, -1);
  errors_on_ranks(3, [&](int rank) {
    if (rank != 2) {
      const auto meet = [&] { Bootstrap(job(address, rank, 3, ""), kLong); };
      named[static_cast<std::size_t>(rank)] = missing_in(meet, Absence::ended);
      return;
    }
    come_and_end(address, 2, 3);
  });
  EXPECT_THAT(named, testing::ElementsAre(2, 2, -1));
}

// Rank 2 listens nowhere and ends when rank 0 knows it. Rank 3, which does not reach it, says so before it ends, too.
TEST(Bootstrap, NamesTheRankThatEndsWhileOthersConnectToIt) {
  const HostPort address = free_address();
  std::vector<int> named(4, -1);
  errors_on_ranks(4, [&](int rank) {
    if (rank != 2) {
      named[static_cast<std::size_t>(rank)] = missing_in([&] { Bootstrap(job(address, rank, 4, ""), kLong); });
      return;
    }
    come_and_end(address, 2, 4);
  });
  EXPECT_THAT(named, testing::ElementsAre(2, 2, -1, 2));
}

// Rank 0 says that all ranks have come, and ends without a word about another one.
TEST(Bootstrap, NamesRank0ThatEndsWhileOthersMeet) {
  const Listener listener = listen_on({"127.0.0.1", 0});
  std::thread rank_0([&] {
    const Deadline deadline(kLong);
    Descriptor rank_1;
    while (!rank_1 && !deadline.has_passed()) rank_1 = accept_waiting(listener);
    Hello hello;
    EXPECT_TRUE(receive_all(rank_1, std::as_writable_bytes(std::span(&hello, 1)), deadline));
    std::uint64_t answer_and_contacts[3 + 3 * 8] = {kJoinMagic};
    EXPECT_TRUE(send_all(rank_1, std::as_bytes(std::span(answer_and_contacts)), deadline));
  });
  const auto meet = [&] { Bootstrap(job({"127.0.0.1", listener.port}, 1, 3, ""), kLong); };
  EXPECT_EQ(missing_in(meet, Absence::ended), 0);
  rank_0.join();
}

TEST(Bootstrap, NamesTheRankThatDoesNotCome) {
  const HostPort address = free_address();
  std::vector<int> named(4, -1);
  errors_on_ranks(4, [&](int rank) {
    Bootstrap bootstrap(job(address, rank, 4, ""), kLong);
    // Rank 3 gives up early; the others, which would wait long, hear of rank 1 from it.
    if (rank != 1)
      named[static_cast<std::size_t>(rank)] =
          missing_in([&] { gather(bootstrap, rank, {}, rank == 3 ? kShort : kLong); }, Absence::late);
    if (rank == 1) {
      pause(4 * kShort);
      EXPECT_EQ(missing_in([&] { gather(bootstrap, rank); }), 1) << "it comes too late and is told so";
    }
    const std::vector<int> all = gather(bootstrap, 7 + rank);
    EXPECT_THAT(all, testing::ElementsAre(7, 8, 9, 10)) << "the next call works";
  });
  EXPECT_THAT(named, testing::ElementsAre(1, -1, 1, 1));
}

TEST(Bootstrap, MissesARankThatEndedWithoutWaiting) {
  const HostPort address = free_address();
  for (const int ends : {0, 2}) {
    std::vector<int> named(3, -1);
    const auto errors = errors_on_ranks(3, [&](int rank) {
      auto bootstrap = std::make_unique<Bootstrap>(job(address, rank, 3, ""), kLong);
      gather(*bootstrap, rank);
      if (rank == ends) return;
      named[static_cast<std::size_t>(rank)] =
          missing_in([&] { gather(*bootstrap, rank, {}, std::chrono::hours(1)); }, Absence::ended);
      RankMask mask(3);
      mask[static_cast<std::size_t>(ends)] = true;
      std::vector<int> expected{1, 2, 3};
      expected[static_cast<std::size_t>(ends)] = 0;
      EXPECT_EQ(gather(*bootstrap, rank + 1, mask), expected);
    });
    EXPECT_THAT(errors, testing::Each(""));
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(named[static_cast<std::size_t>(rank)], rank == ends ? -1 : ends);
  }
}

TEST(Bootstrap, LetsTheLastCallOfARankThatEndsStand) {
  const HostPort address = free_address();
  const auto errors = errors_on_ranks(4, [&](int rank) {
    Bootstrap bootstrap(job(address, rank, 4, ""), kLong);
    if (rank == 2) pause(milliseconds(50));
    EXPECT_THAT(gather(bootstrap, rank), testing::ElementsAre(0, 1, 2, 3));
  });
  EXPECT_THAT(errors, testing::Each(""));
}

TEST(Bootstrap, RefusesAnotherNumberOfRanksWithBothValues) {
  const HostPort address = free_address();
  const auto errors = errors_on_ranks(3, [&](int rank) {
    if (rank == 2)
      Bootstrap(job(address, 1, 5, ""), kLong);
    else
      Bootstrap(job(address, rank, 3, ""), rank == 0 ? milliseconds(1000) : kLong);
  });
  EXPECT_THAT(errors[2], testing::AllOf(HasSubstr("5"), HasSubstr("3")));
  EXPECT_THAT(errors[0], testing::AllOf(HasSubstr("rank 2 did not come"), HasSubstr("rank 1 of 5"))) << "and why";
  EXPECT_THAT(errors[1], HasSubstr("rank 2 did not come"));
}

TEST(Bootstrap, RefusesARankThatIsThereAlready) {
  const HostPort address = free_address();
  std::thread rank_2;
  std::string refused;
  // Threads 1 and 2 both say that they are rank 1. When one of them is refused, rank 2 starts, which all wait for.
  const auto errors = errors_on_ranks(3, [&](int thread) {
    try {
      Bootstrap bootstrap(job(address, thread == 0 ? 0 : 1, 3, ""), kLong);
      EXPECT_THAT(gather(bootstrap, bootstrap.rank()), testing::ElementsAre(0, 1, 2));
    } catch (const Error& error) {
      refused = error.what();
      rank_2 = std::thread([&] {
        Bootstrap bootstrap(job(address, 2, 3, ""), kLong);
        EXPECT_THAT(gather(bootstrap, 2), testing::ElementsAre(0, 1, 2));
      });
    }
  });
  rank_2.join();
  EXPECT_THAT(refused, testing::AllOf(HasSubstr("rank 1"), HasSubstr("already")));
}

TEST(Bootstrap, WaitsForItsOwnJobWhileAnotherListens) {
  const HostPort address = free_address();
  std::string named;
  std::thread other([&] {
    try {
      Bootstrap(job(address, 0, 2, "yesterday"), milliseconds(1000));
    } catch (const PeerMissing& error) {
      named = error.what();
    }
  });
  const auto errors = errors_on_ranks(2, [&](int rank) {
    if (rank == 0) other.join();  // its port is free again
    Bootstrap bootstrap(job(address, rank, 2, "today"), kLong);
    EXPECT_THAT(gather(bootstrap, rank), testing::ElementsAre(0, 1));
  });
  EXPECT_THAT(errors, testing::Each(""));
  EXPECT_THAT(named, testing::AllOf(HasSubstr("today"), HasSubstr("yesterday")));
}

TEST(Bootstrap, LeavesStrangersAlone) {
  const HostPort address = free_address();
  std::vector<Descriptor> strangers;
  std::thread rank_0([&] {
    Bootstrap bootstrap(job(address, 0, 2, ""), kLong);
    EXPECT_THAT(gather(bootstrap, 0), testing::ElementsAre(0, 1));
  });
  const Deadline deadline(kLong);
  const char* words[] = {"GET / HTTP/1.1\r\nHost: here\r\n\r\n", "", "NJ", "\x16\x03\x01"};
  std::string why;
  while (strangers.empty()) {
    Descriptor first = connect_once(address, deadline, why);
    if (first) strangers.push_back(std::move(first));
  }
  for (int i = 0; i < 100; ++i) {  // more than are kept waiting, some silent, some gone at once
    Descriptor stranger = connect_once(address, deadline, why);
    if (!stranger) continue;
    const char* word = words[i % 4];
    send_all(stranger, std::as_bytes(std::span(word, std::strlen(word))), deadline);
    if (i % 3 != 0) strangers.push_back(std::move(stranger));
  }
  Bootstrap bootstrap(job(address, 1, 2, ""), kLong);
  EXPECT_THAT(gather(bootstrap, 1), testing::ElementsAre(0, 1));
  rank_0.join();
}

TEST(Bootstrap, RefusesPartsOfOtherSizes) {
  const HostPort address = free_address();
  const auto errors = errors_on_ranks(2, [&](int rank) {
    Bootstrap bootstrap(job(address, rank, 2, ""), kLong);
    const std::vector<std::byte> mine(rank == 0 ? 4 : 12);
    std::vector<std::byte> all(2 * mine.size());
    bootstrap.all_gather(mine, all, {}, kLong);
  });
  for (const std::string& error : errors) EXPECT_THAT(error, testing::AllOf(HasSubstr("4"), HasSubstr("12")));
}

TEST(Bootstrap, RefusesPartsAboveTheLimitWithBothValues) {
  constexpr std::size_t kLimit = std::size_t{1} << 30;
  Bootstrap bootstrap(job(free_address(), 0, 1, ""), kLong);
  std::byte none{};  // refused before it is read
  try {
    bootstrap.all_gather(std::span(&none, kLimit + 1), std::span(&none, kLimit + 1), {}, kLong);
    ADD_FAILURE() << "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("1073741825"), HasSubstr("1073741824")));
  }
}

std::string refusal(const Job& job) {
  try {
    const Bootstrap bootstrap(job, kShort);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Bootstrap, RefusesWhatCannotBe) {
  EXPECT_THAT(refusal(job(HostPort{"127.0.0.1", 1}, 2, 2, "")), HasSubstr("rank 2 of 2"));
  EXPECT_THAT(refusal(job(HostPort{"127.0.0.1", 1}, 0, 0, "")), HasSubstr("0 ranks"));
  EXPECT_THAT(refusal(job(HostPort{"127.0.0.1", 1}, 0, 2, std::string(64, 'j'))), HasSubstr("64"));
  const Listener taken = listen_on({"127.0.0.1", 0});
  EXPECT_THAT(refusal(job(HostPort{"127.0.0.1", taken.port}, 0, 2, "")), HasSubstr(std::to_string(taken.port)));
}

TEST(ParseAddress, TakesHostAndPort) {
  EXPECT_EQ(parse_address("node1:29500").host, "node1");
  EXPECT_EQ(parse_address("node1:29500").port, 29500);
  EXPECT_EQ(parse_address("[fd00::2]:7").host, "fd00::2");
  EXPECT_EQ(to_string(parse_address("[fd00::2]:7")), "[fd00::2]:7");
  for (const char* bad : {"", "node1", ":5", "node1:", "node1:0", "node1:65536", "node1:5x", "fd00::2:7", "a:-1"})
    EXPECT_THROW(parse_address(bad), Error) << bad;
}

}  // namespace
}  // namespace ferry::net
