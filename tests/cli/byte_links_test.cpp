// Bytes between the processes of a job: here its ends are threads, over the loopback interface.
#include "tool/ranks/byte_links.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <vector>

#include "ferry/error.h"
#include "support/free_port.h"

namespace ferry::app {
namespace {

using namespace std::chrono_literals;

std::vector<std::byte> pattern(std::size_t bytes, int seed) {
  std::vector<std::byte> made(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    made[i] = static_cast<std::byte>(i * 31 + static_cast<std::size_t>(seed) * 7 + i / 251);
  return made;
}

// Runs `body` for each of `size` ranks on a thread of its own.
void run_job(int size, const std::function<void(int rank, ByteLinks& links)>& body) {
  const std::uint16_t port = test::free_port();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      ByteLinks links({{"127.0.0.1", port}, rank, size, "byte links"}, 20s);
      body(rank, links);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(ByteLinks, CarryAnyNumberOfBytesBothWays) {
  run_job(3, [](int rank, ByteLinks& links) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, (std::size_t{1} << 20) - 1, std::size_t{3500001}}) {
      for (int peer = 1; peer < 3; ++peer) {
        std::vector<std::byte> got(bytes);
        if (rank == 0) {
          links.send(pattern(bytes, peer), peer, 20s);
          links.receive(got, peer, 20s);
          EXPECT_TRUE(got == pattern(bytes, 100 + peer)) << bytes << " bytes from rank " << peer;
        } else if (rank == peer) {
          links.receive(got, 0, 20s);
          EXPECT_TRUE(got == pattern(bytes, peer)) << bytes << " bytes";
          links.send(pattern(bytes, 100 + peer), 0, 20s);
        }
      }
    }
  });
}

TEST(ByteLinks, NameARankThatIsGone) {
  run_job(2, [](int rank, ByteLinks& links) {
    if (rank == 1) return;
    std::vector<std::byte> got(100);
    try {
      links.receive(got, 1, 20s);
      ADD_FAILURE() << "bytes of nobody";
    } catch (const PeerMissing& missing) {
      EXPECT_EQ(missing.record().missing_rank, 1);
      EXPECT_EQ(missing.record().my_rank, 0);
    }
    EXPECT_THROW(links.send(got, 1, 20s), PeerMissing);
  });
}

TEST(ByteLinks, GiveUpAtTheDeadline) {
  run_job(2, [](int rank, ByteLinks& links) {
    std::vector<std::byte> got(1);
    if (rank == 0) {
      EXPECT_THROW(links.receive(got, 1, 50ms), PeerMissing);
    } else {
      EXPECT_THROW(links.receive(got, 0, 20s), PeerMissing);  // until the other end gives up
    }
  });
}

}  // namespace
}  // namespace ferry::app
