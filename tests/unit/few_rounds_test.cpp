#include "conformance/target/few_rounds.h"

#include <gmock/gmock.h>

#include <set>
#include <sstream>

#include "conformance/rounds/rank_round.h"
#include "conformance/suite.h"

namespace ferry::conformance {
namespace {

using testing::ElementsAre;

std::vector<std::string> chosen_of(const std::vector<std::string>& rounds) {
  const std::vector<bool> chosen = covering_rounds(rounds);
  std::vector<std::string> list;
  for (std::size_t i = 0; i < rounds.size(); ++i)
    if (chosen[i]) list.push_back(rounds[i]);
  return list;
}

TEST(CoveringRounds, HaveEachSettingAndPairThemAnew) {
  std::vector<std::string> rounds;
  for (const char* format : {"f=1", "f=2", "f=3", "f=4"})
    for (const char* reduction : {" r=1", " r=2"})
      for (const char* order : {" o=1", " o=2"}) rounds.push_back(std::string(format) + reduction + order);
  EXPECT_THAT(chosen_of(rounds), ElementsAre("f=1 r=1 o=1", "f=2 r=2 o=2", "f=3 r=1 o=2", "f=4 r=2 o=1"));
}

TEST(CoveringRounds, AreAllWhereEachIsOfItsOwn) {
  EXPECT_THAT(chosen_of({}), ElementsAre());
  EXPECT_THAT(chosen_of({"a=1"}), ElementsAre("a=1"));
  EXPECT_THAT(chosen_of({"refused: no rows", "refused: no scales", "refused: rows"}), testing::SizeIs(3));
  EXPECT_THAT(chosen_of({"refused", "refused"}), testing::SizeIs(2));
}

TEST(CoveringRounds, HaveAWordAndRoundsWithoutIt) {
  EXPECT_THAT(chosen_of({"a=1 late", "a=1", "a=1 late seed=2"}), ElementsAre("a=1 late", "a=1"));
  EXPECT_THAT(chosen_of({"one a=1", "two a=1", "one a=1 seed=5"}), ElementsAre("one a=1", "two a=1"));
}

// Rounds with one description differ in something else.
TEST(CoveringRounds, HaveOneOfEachTimeThatADescriptionComes) {
  EXPECT_THAT(chosen_of({"a=1", "a=2", "a=1", "a=2"}), ElementsAre("a=1", "a=2"));
  EXPECT_THAT(chosen_of({"a=1", "a=1", "a=1"}), testing::SizeIs(3));
}

Case case_of(const std::vector<std::string>& rounds, std::vector<std::string>& run) {
  return {"case", "", false, [rounds, &run](const Target& target) {
            for (const std::string& round : rounds) on_ranks(target, 1, round, [&](World&) { run.push_back(round); });
          }};
}

TEST(FewRounds, AreThoseThatAreChosen) {
  std::vector<std::string> run;
  run_few_rounds(case_of({"a=1 b=1", "a=1 b=2", "a=2 b=1", "a=2 b=2"}, run), thread_target());
  EXPECT_THAT(run, ElementsAre("a=1 b=1", "a=2 b=2"));
}

// What a case does only after a round has run was in no list.
TEST(FewRounds, AreAllThatTheListHasNot) {
  std::vector<std::string> run;
  const Case each{"case", "", false, [&](const Target& target) {
                    on_ranks(target, 1, "a=1", [&](World&) { run.push_back("first"); });
                    if (run.empty()) throw Failure(0, "a round", "to have run", "none");
                    for (int i = 0; i < 3; ++i) on_ranks(target, 1, "a=1", [&](World&) { run.push_back("more"); });
                  }};
  run_few_rounds(each, thread_target());
  EXPECT_THAT(run, ElementsAre("first", "more", "more", "more"));
}

TEST(FewRounds, FailWhereOneFails) {
  const Case each{"case", "", false, [](const Target& target) {
                    on_ranks(target, 1, "a=1", [](World&) {});
                    on_ranks(target, 1, "a=2", [](World&) { throw Failure(0, "here", "this", "that"); });
                  }};
  EXPECT_THROW(run_few_rounds(each, thread_target()), Failure);
}

std::set<std::string> words_in(const std::vector<std::string>& rounds) {
  std::set<std::string> words;
  for (const std::string& round : rounds) {
    std::istringstream text(round);
    for (std::string word; text >> word;)
      if (!word.starts_with("seed=")) words.insert(word);
  }
  return words;
}

// Of the suite itself: no format, routing, order of rows or dtype that a case has is left out, and it gets shorter.
TEST(FewRounds, OfEachCaseHaveAllItsSettings) {
  std::size_t all = 0, few = 0;
  for (const Case& each : all_cases()) {
    if (each.name.starts_with("large") || each.name.starts_with("stress")) continue;  // their scenarios take long
    const std::vector<std::string> rounds = rounds_of(each, thread_target());
    const std::vector<std::string> chosen = chosen_of(rounds);
    EXPECT_EQ(words_in(chosen), words_in(rounds)) << each.name;
    all += rounds.size();
    few += chosen.size();
  }
  EXPECT_GT(all, 2000u);
  EXPECT_LT(few, all * 2 / 3);
}

}  // namespace
}  // namespace ferry::conformance
