// Which pair of GPUs is named where two cannot reach each other, and what else the driver may have refused.
#include "cuda/world/peer_reach.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace ferry::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using Pairs = std::set<std::pair<int, int>>;  // (from, to) that do not reach

std::string name(int rank) { return fmt::format("GPU {} of rank {}", 10 + rank, rank); }

// What `rank` of four says; empty where it reaches all.
std::string refusal(int rank, const Pairs& apart) {
  try {
    require_reach(
        rank, 4,
        [&](int peer) {
          return !apart.contains({rank, peer});
        },
        name);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    return error.what();
  }
  return {};
}

TEST(PeerReach, IsTakenWhereAllReachEachOther) {
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(refusal(rank, {}), "");
}

TEST(PeerReach, NamesThePairThatCannot) {
  const Pairs apart{{1, 3}};
  EXPECT_EQ(
      refusal(1, apart),
      "GPU 11 of rank 1 cannot reach the memory of GPU 13 of rank 3; ranks of one world must all reach each other "
      "(NVLink or PCIe peer access)");
}

// Reach may go one way: the one that cannot says so, as its kernels are those that would fail.
TEST(PeerReach, IsAskedInEachDirection) {
  const Pairs apart{{3, 0}};
  EXPECT_EQ(refusal(0, apart), "");
  EXPECT_THAT(refusal(3, apart), AllOf(HasSubstr("GPU 13 of rank 3 cannot"), HasSubstr("GPU 10 of rank 0;")));
}

TEST(PeerReach, NamesTheFirstOfSeveral) {
  EXPECT_THAT(refusal(2, {{2, 3}, {2, 0}}), AllOf(HasSubstr("of rank 0;"), Not(HasSubstr("of rank 3;"))));
}

// A device reaches its own memory, whatever the driver says of a pair of one.
TEST(PeerReach, IsNotAskedOfARankItself) {
  require_reach(
      2, 4, [](int peer) { return peer != 2; }, name);
  require_reach(
      0, 1, [](int) { return false; }, name);
}

TEST(MappingErrors, SayWhatTheDriverSaidBesideTheRule) {
  const Error error = cannot_map(name(1), name(2), false, "cuMemSetAccess: invalid device ordinal (101)");
  EXPECT_EQ(error.kind(), ErrorKind::unsupported);
  EXPECT_THAT(error.what(), HasSubstr("GPU 11 of rank 1 cannot map the memory of GPU 12 of rank 2: cuMemSetAccess: "
                                      "invalid device ordinal (101). Ranks of one world must all reach"));
}

TEST(MappingErrors, OfALackOfMemoryDoNotSpeakOfReach) {
  const Error error = cannot_map(name(1), name(2), true, "cuMemMap: out of memory (2)");
  EXPECT_EQ(error.kind(), ErrorKind::system);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("GPU 11 of rank 1 has no room to map the memory of GPU 12 of rank 2"),
                    HasSubstr("cuMemMap: out of memory (2)"), HasSubstr("max_tokens"), Not(HasSubstr("reach"))));
}

}  // namespace
}  // namespace ferry::cuda
