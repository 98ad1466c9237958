// Calls of a bootstrap that some ranks make and others do not.
#include <gmock/gmock.h>

#include <latch>

#include "ferry/error.h"
#include "support/bootstrap_ranks.h"

namespace ferry::net {
namespace {

using std::chrono::milliseconds;
using test::gather;

// Rank 1 learns elsewhere that rank 2 has ended, so it does not come to the call in which rank 0 sees it. Both go on
// with a mask that names rank 2.
TEST(BootstrapCalls, ThatOthersGaveUpAreLeftOut) {
  const HostPort address{"127.0.0.1", test::free_port()};
  std::latch gave_up(1);
  const auto errors = test::errors_on_ranks(3, [&](int rank) {
    Bootstrap bootstrap({address, rank, 3, "job"}, milliseconds(20'000));
    gather(bootstrap, rank);
    if (rank == 2) return;
    if (rank == 0) {
      EXPECT_THROW(gather(bootstrap, 100), PeerMissing);
      gave_up.count_down();
    }
    gave_up.wait();
    for (int turn = 1; turn <= 3; ++turn) {
      EXPECT_THAT(gather(bootstrap, 10 * turn + rank, {false, false, true}),
                  testing::ElementsAre(10 * turn, 10 * turn + 1, 0));
    }
  });
  EXPECT_THAT(errors, testing::Each(""));
}

}  // namespace
}  // namespace ferry::net
