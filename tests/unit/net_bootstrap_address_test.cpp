// Processes that learn by an all_gather of the caller's where rank 0 listens; here as threads.
#include "net/bootstrap_address.h"

#include <gmock/gmock.h>

#include <atomic>
#include <barrier>
#include <thread>

#include "ferry/error.h"
#include "support/bootstrap_ranks.h"

namespace ferry::net {
namespace {

using test::errors_on_ranks;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr std::chrono::milliseconds kLong{20'000};

// What a process group of the caller's is: each rank gives its bytes and gets those of all.
class Group {
 public:
  explicit Group(int ranks) : parts_(static_cast<std::size_t>(ranks)), meet_(ranks) {}

  AllGather of(int rank) {
    return [this, rank](std::span<const std::byte> mine) {
      ++calls_;
      parts_[static_cast<std::size_t>(rank)].assign(mine.begin(), mine.end());
      meet_.arrive_and_wait();
      std::vector<std::byte> all;
      for (const auto& part : parts_) all.insert(all.end(), part.begin(), part.end());
      meet_.arrive_and_wait();
      return all;
    };
  }
  int calls() const { return calls_; }

 private:
  std::vector<std::vector<std::byte>> parts_;
  std::barrier<> meet_;
  std::atomic<int> calls_{0};
};

ProcessPlace place(int rank, int size, AllGather all_gather) {
  ProcessPlace made;
  made.rank = made.local_rank = rank;
  made.size = size;
  made.all_gather = std::move(all_gather);
  return place_of_process(made);
}

// B11: later set-ups go over the links that were made.
TEST(BootstrapAddress, CallsTheFunctionOnceOnEachRankAndNeverAgain) {
  for (const int ranks : {1, 2, 5}) {
    Group group(ranks);
    const auto errors = errors_on_ranks(ranks, [&](int rank) {
      Bootstrap bootstrap(job_of(place(rank, ranks, group.of(rank)), ranks), kLong);
      for (int turn = 0; turn < 3; ++turn) {
        std::vector<int> all(static_cast<std::size_t>(ranks));
        const int mine = 10 * turn + rank;
        bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), {}, kLong);
        for (int peer = 0; peer < ranks; ++peer) EXPECT_EQ(all[static_cast<std::size_t>(peer)], 10 * turn + peer);
      }
    });
    EXPECT_THAT(errors, Each(""));
    EXPECT_EQ(group.calls(), ranks);
  }
}

// Two jobs of one machine listen at ports of their own.
TEST(BootstrapAddress, KeepsJobsApart) {
  Group groups[] = {Group(2), Group(2)};
  const auto errors = errors_on_ranks(4, [&](int thread) {
    const int job = thread / 2;
    Bootstrap bootstrap(job_of(place(thread % 2, 2, groups[job].of(thread % 2)), 2), kLong);
    std::vector<int> all(2);
    bootstrap.all_gather(std::as_bytes(std::span(&job, 1)), std::as_writable_bytes(std::span(all)), {}, kLong);
    EXPECT_THAT(all, Each(job));
  });
  EXPECT_THAT(errors, Each(""));
}

// Rank 0 can be reached by the second address only, as where the first is of a network that other hosts do not see.
TEST(BootstrapAddress, TriesTheNextAddressWhereOneLeadsNowhere) {
  Group group(3);
  const auto errors = errors_on_ranks(3, [&](int rank) {
    Job job = job_of(place(rank, 3, group.of(rank)), 3);
    const std::uint16_t closed = listen_on({"127.0.0.1", 0}).port;  // nobody listens there any more
    job.other_addresses.insert(job.other_addresses.begin(), job.address);
    job.address = {"127.0.0.1", closed};
    Bootstrap bootstrap(job, kLong);
    EXPECT_EQ(bootstrap.size(), 3);
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(BootstrapAddress, NamesARankThatNeverConnects) {
  Group group(3);
  const auto errors = errors_on_ranks(3, [&](int rank) {
    const Job job = job_of(place(rank, 3, group.of(rank)), 3);
    if (rank != 2) Bootstrap(job, rank == 0 ? std::chrono::milliseconds(300) : kLong);
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 2 did not come"));
  EXPECT_THAT(errors[1], HasSubstr("rank 2 did not come"));
}

TEST(BootstrapAddress, RefusesBytesThatAreNotThoseOfAllRanksInOrder) {
  const auto error_of = [](int size, const AllGather& all_gather) {
    try {
      job_of(place(0, size, all_gather), 8);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
      return std::string(error.what());
    }
    return std::string();
  };
  const auto times = [](std::size_t count) {
    return [count](std::span<const std::byte> mine) {
      std::vector<std::byte> all;
      for (std::size_t i = 0; i < count; ++i) all.insert(all.end(), mine.begin(), mine.end());
      return all;
    };
  };
  EXPECT_THAT(error_of(2, times(1)), AllOf(HasSubstr("all_gather gave"), HasSubstr("2 ranks")));
  EXPECT_THAT(error_of(2, times(2)), AllOf(HasSubstr("entry 1"), HasSubstr("rank 0 of 2"), HasSubstr("rank order")));
  EXPECT_THAT(error_of(1, [](auto mine) { return std::vector<std::byte>(mine.size()); }), HasSubstr("entry 0"));
  EXPECT_THAT(error_of(9, times(9)), HasSubstr("9 ranks"));
}

// What the caller's function throws comes back as it is.
TEST(BootstrapAddress, PassesOnWhatTheFunctionThrows) {
  const auto broken = [](std::span<const std::byte>) -> std::vector<std::byte> { throw std::logic_error("no group"); };
  EXPECT_THROW(job_of(place(0, 2, broken), 2), std::logic_error);
}

TEST(BootstrapAddress, TakesAnAddressOrAFunction) {
  ProcessPlace both;
  both.rank = 0;
  both.size = 2;
  both.address = "127.0.0.1:29500";
  EXPECT_EQ(job_of(both, 2).address.port, 29500);
  both.all_gather = [](std::span<const std::byte>) { return std::vector<std::byte>(); };
  try {
    place_of_process(both);
    ADD_FAILURE() << "both were taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("127.0.0.1:29500"), HasSubstr("all_gather")));
  }
}

// A job is tried with one process first: a mistyped address is found then.
TEST(BootstrapAddress, OfOneRankIsJudgedToo) {
  ProcessPlace alone;
  alone.rank = 0;
  alone.size = 1;
  EXPECT_NO_THROW(job_of(alone, 1));
  for (const char* address : {"127.0.0.1:99999", "127.0.0.1:0", "127.0.0.1"}) {
    alone.address = address;
    EXPECT_THROW(job_of(alone, 1), Error) << address;
  }
}

}  // namespace
}  // namespace ferry::net
