// A rank that is stopped while it meets the others, or makes a world with them.
#include <gmock/gmock.h>

#include <chrono>
#include <latch>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "ferry/error.h"
#include "net/bootstrap.h"
#include "support/bootstrap_ranks.h"

namespace ferry::net {
namespace {

using std::chrono::milliseconds;
using test::errors_on_ranks;
using test::free_address;
using test::gather;
using testing::HasSubstr;

constexpr milliseconds kLong{20'000};

Job stoppable(const HostPort& address, int rank, int size,
              const std::stop_source& stop = std::stop_source(std::nostopstate)) {
  Job made;
  made.address = address;
  made.rank = rank;
  made.size = size;
  made.stop = stop.get_token();
  return made;
}

// The error of a rank that is stopped after `after`, and that it came soon.
void expect_stopped(const HostPort& address, int rank, int size, milliseconds after) {
  std::stop_source stop;
  std::jthread stopping([&] {
    std::this_thread::sleep_for(after);
    stop.request_stop();
  });
  const auto begin = std::chrono::steady_clock::now();
  try {
    const Bootstrap bootstrap(stoppable(address, rank, size, stop), kLong);
    ADD_FAILURE() << "rank " << rank << " was not stopped";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::aborted) << error.what();
    EXPECT_THAT(error.what(),
                HasSubstr("rank " + std::to_string(rank) + ": the call that makes the world was stopped"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kLong / 4);
}

// Rank 0 would go on listening where a second try listens, and be met in its place.
TEST(BootstrapStop, OfRank0ThatIsStoppedLeavesItsAddress) {
  const HostPort address = free_address();
  std::latch stopped(1);
  const auto errors = errors_on_ranks(2, [&](int rank) {
    if (rank == 0) {
      expect_stopped(address, 0, 2, milliseconds(100));
      stopped.count_down();
    }
    stopped.wait();
    const std::vector<int> all = [&] {
      Bootstrap bootstrap(stoppable(address, rank, 2), kLong);
      return gather(bootstrap, rank);
    }();
    EXPECT_THAT(all, testing::ElementsAre(0, 1));
  });
  EXPECT_THAT(errors, testing::Each(""));
}

TEST(BootstrapStop, OfAnotherRankThatIsStoppedHasEndedToTheOthers) {
  const HostPort address = free_address();
  int named = -1;
  const auto errors = errors_on_ranks(3, [&](int rank) {  // rank 2 never comes
    if (rank == 1) expect_stopped(address, 1, 3, milliseconds(100));
    if (rank != 0) return;
    try {
      Bootstrap(stoppable(address, 0, 3), kLong);
    } catch (const PeerMissing& error) {
      EXPECT_EQ(error.record().absence, Absence::ended) << error.what();
      named = error.record().missing_rank;
    }
  });
  EXPECT_THAT(errors, testing::Each(""));
  EXPECT_EQ(named, 1);
}

TEST(BootstrapStop, IsNotMadeWhereItIsStoppedBefore) {
  std::stop_source stop;
  stop.request_stop();
  for (const int rank : {0, 1}) {
    const Job stopped = stoppable(free_address(), rank, 2, stop);
    EXPECT_THROW(Bootstrap(stopped, kLong), Error);
  }
}

// All are connected: what follows the connections is stopped, too.
TEST(BootstrapStop, ThatIsStoppedBehindItsConnectionsIsAborted) {
  const HostPort address = free_address();
  std::stop_source stop;
  std::string heard;
  const auto errors = errors_on_ranks(2, [&](int rank) {
    Bootstrap bootstrap(stoppable(address, rank, 2, rank == 1 ? stop : std::stop_source(std::nostopstate)), kLong);
    if (rank == 1) {
      stop.request_stop();
      EXPECT_THROW(gather(bootstrap, 1), Error);
      EXPECT_THROW(bootstrap.set_up_is_done(), Error);  // no world comes of it
      return;
    }
    try {
      gather(bootstrap, 0);
    } catch (const Error& error) {
      heard = error.what();
    }
  });
  EXPECT_THAT(errors, testing::Each(""));
  EXPECT_THAT(heard, HasSubstr("stopped while its world was made"));
}

TEST(BootstrapStop, DoesNothingWhereTheSetUpIsDone) {
  const HostPort address = free_address();
  std::stop_source stop;
  const auto errors = errors_on_ranks(2, [&](int rank) {
    Bootstrap bootstrap(stoppable(address, rank, 2, stop), kLong);
    bootstrap.set_up_is_done();
    gather(bootstrap, rank);
    stop.request_stop();
    EXPECT_THAT(gather(bootstrap, rank), testing::ElementsAre(0, 1));
  });
  EXPECT_THAT(errors, testing::Each(""));
}

}  // namespace
}  // namespace ferry::net
