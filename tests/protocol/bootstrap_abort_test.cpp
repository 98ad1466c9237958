// A rank that aborts while processes meet by TCP, here as threads. The deadlines are an hour: a wait that only its
// deadline ends does not end in time for the test.
#include <gmock/gmock.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "net/reception.h"
#include "support/bootstrap_ranks.h"

namespace ferry::net {
namespace {

using testing::HasSubstr;

constexpr int kRanks = 3;
constexpr int kFailing = 1;
constexpr std::chrono::hours kForever{1};

void on_ranks(const std::function<void(Bootstrap&)>& body) { test::on_bootstraps(kRanks, body); }

void meet(Bootstrap& bootstrap, const RankMask& mask = {}) { test::gather(bootstrap, 1, mask, kForever); }

void expect_aborted(const std::string& reason, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error";
  } catch (const Aborted& error) {
    EXPECT_EQ(error.record().missing_rank, kFailing) << error.what();
    EXPECT_EQ(error.reason(), reason);
    EXPECT_THAT(error.what(), HasSubstr("rank 1"));
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
}

TEST(BootstrapAbort, EndsAnAllGatherAtOnce) {
  on_ranks([](Bootstrap& bootstrap) {
    meet(bootstrap);
    if (bootstrap.rank() == kFailing) bootstrap.tell_aborted({kFailing, kFailing, "no memory"});
    expect_aborted("no memory", [&] { meet(bootstrap); });
    EXPECT_EQ(bootstrap.abort_reason(kFailing), bootstrap.rank() == kFailing ? "" : "no memory");
  });
}

// Also where its process ends right after that: the word comes before the end of the connection.
TEST(BootstrapAbort, IsTheErrorOfARankThatEnds) {
  on_ranks([](Bootstrap& bootstrap) {
    if (bootstrap.rank() == kFailing) return bootstrap.tell_aborted({kFailing, kFailing, "no memory"});
    expect_aborted("no memory", [&] { meet(bootstrap); });
  });
}

TEST(BootstrapAbort, EndsAReceiveAndASendAtOnce) {
  on_ranks([](Bootstrap& bootstrap) {
    std::vector<std::byte> bytes(std::size_t{64} << 20);  // more than the sockets take
    if (bootstrap.rank() == kFailing) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return bootstrap.tell_aborted({kFailing, kFailing, "out of disk"});
    }
    if (bootstrap.rank() == 0) expect_aborted("out of disk", [&] { bootstrap.receive(bytes, kFailing, kForever); });
    if (bootstrap.rank() == 2) expect_aborted("out of disk", [&] { bootstrap.send(bytes, kFailing, kForever); });
  });
}

TEST(BootstrapAbort, ComesFromAnyThreadAndEndsTheCallThatItsOwnRankIsIn) {
  on_ranks([](Bootstrap& bootstrap) {
    std::thread watch;
    if (bootstrap.rank() == 0)
      return expect_aborted("enough", [&] {
        for (;;) bootstrap.require_there(kFailing);
      });
    if (bootstrap.rank() == kFailing)
      watch = std::thread([&] { bootstrap.tell_aborted({kFailing, kFailing, "enough"}); });
    expect_aborted("enough", [&] {
      for (;;) meet(bootstrap, {true, false, false});
    });
    if (watch.joinable()) watch.join();
  });
}

// The exchange of a rank asks for the reason on its own thread while another thread of the rank is in a call.
TEST(BootstrapAbort, IsAskedForOnAnotherThreadThanThatOfACall) {
  for (int turn = 0; turn < 3; ++turn)
    on_ranks([](Bootstrap& bootstrap) {
      if (bootstrap.rank() == kFailing) {
        meet(bootstrap);
        return bootstrap.tell_aborted({kFailing, kFailing, "no memory"});
      }
      std::thread asks([&] {
        while (bootstrap.abort_reason(kFailing) != "no memory") std::this_thread::yield();
      });
      meet(bootstrap);
      expect_aborted("no memory", [&] { meet(bootstrap); });
      asks.join();
    });
}

TEST(BootstrapAbort, SaysTheBeginningOfALongReason) {
  const std::string reason = std::string(kMostReason, 'a') + "bc";
  on_ranks([&](Bootstrap& bootstrap) {
    if (bootstrap.rank() == kFailing) return bootstrap.tell_aborted({kFailing, kFailing, reason});
    expect_aborted(std::string(kMostReason, 'a'), [&] { meet(bootstrap); });
  });
}

// All others make the same number of calls, so they can go on without it.
TEST(BootstrapAbort, LetsTheOthersGoOnWithAMask) {
  for (int turn = 0; turn < 20; ++turn)
    on_ranks([](Bootstrap& bootstrap) {
      meet(bootstrap);
      if (bootstrap.rank() == kFailing) return bootstrap.tell_aborted({kFailing, kFailing, "away"});
      expect_aborted("away", [&] { meet(bootstrap); });
      meet(bootstrap, {false, true, false});
      meet(bootstrap, {false, true, false});
    });
}

// Rank 1 says who it is, and ends. Rank 2 never comes, for which rank 0 would wait for an hour.
TEST(Bootstrap, IsNotMetWhereARankEndsBeforeAllHaveCome) {
  const HostPort address{"127.0.0.1", test::free_port()};
  std::string error_of_rank_0;
  std::thread rank_0([&] {
    try {
      Bootstrap bootstrap({address, 0, kRanks, ""}, kForever);
    } catch (const PeerMissing& error) {
      error_of_rank_0 = error.what();
    }
  });
  {
    const Deadline deadline(std::chrono::seconds(20));
    std::string why;
    Descriptor socket;
    while (!socket && !deadline.has_passed()) socket = connect_once(address, deadline, why);
    Hello hello;
    hello.milliseconds_left = 3'600'000;
    hello.rank = kFailing;
    hello.size = kRanks;
    EXPECT_TRUE(send_all(socket, std::as_bytes(std::span(&hello, 1)), deadline));
  }
  rank_0.join();
  EXPECT_THAT(error_of_rank_0, HasSubstr("rank 1 ended while the ranks were met"));
}

}  // namespace
}  // namespace ferry::net
