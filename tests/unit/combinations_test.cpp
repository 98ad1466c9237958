// The list of combinations leaves out no two choices that go together.
#include "conformance/rounds/combinations.h"

#include <gtest/gtest.h>

#include <set>

namespace ferry::conformance {
namespace {

std::set<std::string> impossible_pairs() {
  std::vector<Pair> impossible;
  pairwise_choices(&impossible);
  std::set<std::string> names;
  for (const Pair& pair : impossible) names.insert(to_string(pair));
  return names;
}

// Without those of formats that have no tiled scales, which names say by themselves.
TEST(Combinations, LackOnlyPairsThatAreRefused) {
  std::set<std::string> without_tiles;
  for (const std::string& format : axes()[0].names)
    if (format != "mxfp8") without_tiles.insert(format + " with tiled scales");
  std::set<std::string> found;
  for (const std::string& pair : impossible_pairs())
    if (without_tiles.count(pair) == 0) found.insert(pair);
  // An exchange or a call refuses them.
  const std::set<std::string> expected = {"by_source with exact",
                                          "of each rank with exact",
                                          "by_source with shared expert",
                                          "of each rank with shared expert",
                                          "in_place with shared expert",
                                          "in_place with cleared",
                                          "of each rank with cleared",
                                          "exact with late",
                                          "exact with late or not",
                                          "exact with not applied",
                                          "by_rank with unreduced",
                                          "by_source with unreduced",
                                          "of each rank with unreduced",
                                          "f32 with unreduced",
                                          "bf16 with unreduced",
                                          "hook with unreduced",
                                          "late with unreduced",
                                          "late or not with unreduced",
                                          "home with unreduced",
                                          "not applied with unreduced",
                                          "unreduced with shared expert",
                                          "by_source with either exact",
                                          "of each rank with either exact",
                                          "either by_rank with late",
                                          "either by_rank with late or not",
                                          "either by_rank with unreduced",
                                          "either exact with late",
                                          "either exact with late or not",
                                          "either exact with not applied"};
  EXPECT_EQ(found, expected);
}

TEST(Combinations, HaveEachOtherPair) {
  std::set<std::string> found;  // with the axes: several have a choice called bf16
  const std::vector<Choices> list = pairwise_choices();
  for (const Choices& choices : list) {
    ASSERT_TRUE(combination_of(choices).has_value());
    for (std::size_t a = 0; a < kAxes; ++a)
      for (std::size_t b = a + 1; b < kAxes; ++b)
        found.insert(std::to_string(a) + ", " + std::to_string(b) + ": " + to_string({a, b, choices[a], choices[b]}));
  }
  std::size_t all = 0;
  for (std::size_t a = 0; a < kAxes; ++a)
    for (std::size_t b = a + 1; b < kAxes; ++b) all += axes()[a].names.size() * axes()[b].names.size();
  std::vector<Pair> impossible;
  pairwise_choices(&impossible);
  EXPECT_EQ(found.size() + impossible.size(), all);
  EXPECT_LT(list.size(), 200u);
}

TEST(Combinations, AreManyInTheProduct) {
  const std::vector<Choices> product = product_choices(0);
  EXPECT_GT(product.size(), 5000u);
  std::set<Choices> main;
  for (Choices choices : product) {
    EXPECT_EQ(choices[0], 0);
    for (std::size_t axis = kMainAxes; axis < kAxes; ++axis) choices[axis] = 0;
    EXPECT_TRUE(main.insert(choices).second);
  }
}

}  // namespace
}  // namespace ferry::conformance
