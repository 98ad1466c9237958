// Bytes from rank to rank over a bootstrap: here its ends are threads, over the loopback interface.
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "ferry/error.h"
#include "support/bootstrap_ranks.h"

namespace ferry::net {
namespace {

using namespace std::chrono_literals;
using test::gather;

std::vector<std::byte> pattern(std::size_t bytes, int seed) {
  std::vector<std::byte> made(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    made[i] = static_cast<std::byte>(i * 31 + static_cast<std::size_t>(seed) * 7 + i / 251);
  return made;
}

void run_job(int size, const std::function<void(int rank, Bootstrap& bootstrap)>& body) {
  test::on_bootstraps(size, [&](Bootstrap& bootstrap) { body(bootstrap.rank(), bootstrap); });
}

TEST(BootstrapBytes, CarryAnyNumberOfBytesBothWays) {
  run_job(3, [](int rank, Bootstrap& bootstrap) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, (std::size_t{1} << 20) - 1, std::size_t{9500001}}) {
      for (int peer = 1; peer < 3; ++peer) {
        std::vector<std::byte> got(bytes);
        if (rank == 0) {
          bootstrap.send(pattern(bytes, peer), peer, 20s);
          bootstrap.receive(got, peer, 20s);
          EXPECT_TRUE(got == pattern(bytes, 100 + peer)) << bytes << " bytes from rank " << peer;
        } else if (rank == peer) {
          bootstrap.receive(got, 0, 20s);
          EXPECT_TRUE(got == pattern(bytes, peer)) << bytes << " bytes";
          bootstrap.send(pattern(bytes, 100 + peer), 0, 20s);
        }
      }
    }
  });
}

TEST(BootstrapBytes, WaitWhileTheReceiverIsInAnotherCall) {
  run_job(3, [](int rank, Bootstrap& bootstrap) {
    const std::size_t bytes = 3'000'000;
    if (rank == 0) bootstrap.send(pattern(bytes, 1), 1, 20s);  // rank 1 sends to rank 2 before it receives
    std::vector<std::byte> got(bytes);
    if (rank == 2) bootstrap.receive(std::span(got).first(1), 1, 20s);
    if (rank == 1) {
      const std::byte go{1};
      bootstrap.send(std::span(&go, 1), 2, 20s);
      bootstrap.receive(got, 0, 20s);
      EXPECT_TRUE(got == pattern(bytes, 1));
    }
    EXPECT_EQ(gather(bootstrap, rank), (std::vector<int>{0, 1, 2}));
  });
}

TEST(BootstrapBytes, ComeInTheOrderOfTheSends) {
  run_job(2, [](int rank, Bootstrap& bootstrap) {
    for (int i = 0; i < 100; ++i) {
      std::vector<std::byte> got(static_cast<std::size_t>(i));
      if (rank == 0) {
        bootstrap.send(pattern(got.size(), i), 1, 20s);
      } else {
        bootstrap.receive(got, 0, 20s);
        EXPECT_TRUE(got == pattern(got.size(), i)) << i;
      }
    }
  });
}

TEST(BootstrapBytes, NameARankThatIsGone) {
  run_job(2, [](int rank, Bootstrap& bootstrap) {
    if (rank == 1) return;
    std::vector<std::byte> got(100);
    try {
      bootstrap.receive(got, 1, 20s);
      ADD_FAILURE() << "bytes of nobody";
    } catch (const PeerMissing& missing) {
      EXPECT_EQ(missing.record().missing_rank, 1);
      EXPECT_EQ(missing.record().my_rank, 0);
    }
    EXPECT_THROW(bootstrap.send(got, 1, 20s), PeerMissing);
  });
}

TEST(BootstrapBytes, GiveUpAtTheDeadline) {
  run_job(2, [](int rank, Bootstrap& bootstrap) {
    std::vector<std::byte> got(1);
    if (rank == 0) {
      EXPECT_THROW(bootstrap.receive(got, 1, 50ms), PeerMissing);
    } else {
      EXPECT_THROW(bootstrap.receive(got, 0, 20s), PeerMissing);  // until the other end gives up
    }
    EXPECT_THROW(bootstrap.send(got, 1 - rank, 20s), PeerMissing);
    EXPECT_EQ(gather(bootstrap, rank), (std::vector<int>{0, 1}));  // both are there all the same
  });
}

TEST(BootstrapBytes, RefuseThisRankAndRanksThatAreNot) {
  run_job(2, [](int rank, Bootstrap& bootstrap) {
    std::vector<std::byte> got(1);
    for (const int other : {-1, rank, 2}) {
      EXPECT_THROW(bootstrap.send(got, other, 20s), Error);
      EXPECT_THROW(bootstrap.receive(got, other, 20s), Error);
    }
  });
}

}  // namespace
}  // namespace ferry::net
