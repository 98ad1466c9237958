// A case on a target that cannot run all of its rounds: it runs the others, and is skipped where there is none.
#include <gmock/gmock.h>

#include "conformance/rounds/rank_round.h"
#include "conformance/suite.h"

namespace ferry::conformance {
namespace {

const Case& case_named(const std::string& name) {
  for (const Case& each : all_cases())
    if (each.name == name) return each;
  throw std::logic_error("no case is named " + name);
}

Target target_of(int ranks) {
  Target target = thread_target();
  target.max_ranks = ranks;
  return target;
}

std::string why_skipped(const std::function<void()>& run) {
  try {
    run();
    return "not skipped";
  } catch (const Skipped& skipped) {
    return skipped.what();
  }
}

void make_rounds(const Target& target, std::initializer_list<int> ranks, std::vector<int>& run) {
  for (const int each : ranks)
    on_ranks(target, each, "a round", [&](World& world) {
      if (each == 1) throw Skipped("one rank is not enough");
      if (world.rank() == 0) run.push_back(each);
    });
}

TEST(SkippedRounds, AreThoseOfTooManyRanksAndThoseThatThrow) {
  std::vector<int> run;
  const Case each = skipped_by_rounds({"case", "", false, [&](const Target& t) {
                                         make_rounds(t, {3, 1, 2, 4, 2}, run);
                                       }});
  RoundTally tally;
  Target target = target_of(2);
  target.tally = &tally;
  each.run(target);
  EXPECT_THAT(run, testing::ElementsAre(2, 2));
  EXPECT_EQ(tally.run, 2);
  EXPECT_EQ(tally.skipped, 3);
  EXPECT_EQ(tally.why_skipped, "needs 3 ranks; the backend has 2");
}

TEST(SkippedRounds, AreACaseThatIsSkippedWhereTheyAreAll) {
  std::vector<int> run;
  const Case each = skipped_by_rounds({"case", "", false, [&](const Target& t) { make_rounds(t, {1, 5}, run); }});
  EXPECT_EQ(why_skipped([&] { each.run(target_of(2)); }), "one rank is not enough");
}

TEST(SkippedRounds, ThrowWhereNobodyCountsThem) {
  std::vector<int> run;
  EXPECT_EQ(why_skipped([&] { make_rounds(target_of(2), {2, 3, 2}, run); }), "needs 3 ranks; the backend has 2");
  EXPECT_THAT(run, testing::ElementsAre(2));
}

// Of the suite: the first round of each has more ranks, or is of a world that can do more.
TEST(SkippedRounds, OfTheSuiteLeaveThoseThatTwoRanksCanRun) {
  for (const char* name : {"options/narrow_weights", "options/dynamic_scales", "options/f16_sums", "weights/late",
                           "weights/returned", "counts/by_counts"}) {
    RoundTally tally;
    Target target = target_of(2);
    target.tally = &tally;
    case_named(name).run(target);
    EXPECT_GT(tally.run, 0) << name;
  }
}

// Where a case names no rank, it runs on those that are there.
TEST(SkippedRounds, AreFewWhereShapesFitTheRanks) {
  for (const int ranks : {1, 2}) {
    int ok = 0, skipped = 0;
    for (const char* name : {"options/bias", "options/result_formats", "routings/one_rank", "outputs/formats_padded",
                             "sizes/options_by_expert", "outputs/handles_by_expert"}) {
      try {
        case_named(name).run(target_of(ranks));
        ++ok;
      } catch (const Skipped&) {
        ++skipped;
      }
    }
    EXPECT_EQ(skipped, 0) << ranks;
    EXPECT_EQ(ok, 6) << ranks;
  }
}

}  // namespace
}  // namespace ferry::conformance
