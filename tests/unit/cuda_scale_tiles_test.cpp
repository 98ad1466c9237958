// What the scales kernel stores and how its warps find it: plain arithmetic, held to the rows of random groups.
#include "ferry/detail/cuda/steps/scale_tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "conformance/oracle/routing_patterns.h"

namespace ferry::cuda {
namespace {

using ferry::test::Random;

// Row starts as a dispatch keeps them, and the source of every row that is not padding, group by group.
struct Groups {
  std::vector<std::uint32_t> of_source, group, filled, tiles;
  std::vector<std::vector<int>> sources;

  RowStarts starts() { return {of_source.data(), group.data(), filled.data(), tiles.data(), nullptr}; }
};

// Groups that are empty, of one row, about a tile full and long; sources with many rows, few and none.
Groups random_groups(Random& random, int ranks, int experts) {
  Groups made;
  const std::uint32_t alignment = 1u << random.below(8);
  made.of_source.resize(static_cast<std::size_t>(ranks * experts));
  std::uint32_t row = 0;
  std::uint32_t tiles = 0;
  for (int expert = 0; expert < experts; ++expert) {
    std::vector<int> sources;
    for (int source = 0; source < ranks; ++source) {
      made.of_source[static_cast<std::size_t>(source * experts + expert)] = static_cast<std::uint32_t>(sources.size());
      const int sizes[] = {0, 0, 1, random.below(40), random.between(126, 130), random.below(600)};
      sources.insert(sources.end(), static_cast<std::size_t>(sizes[random.below(6)]), source);
    }
    made.group.push_back(row);
    made.filled.push_back(static_cast<std::uint32_t>(sources.size()));
    made.tiles.push_back(scales_offset_of(tiles, row));
    tiles += static_cast<std::uint32_t>(scale_blocks(made.filled.back()));
    row += (made.filled.back() + alignment - 1) / alignment * alignment;
    made.sources.push_back(sources);
  }
  made.group.push_back(row);
  return made;
}

Plan plan_of(int ranks, int experts) {
  Plan plan;
  plan.set_shape({ranks, ranks * experts, 1, 8, 64});
  return plan;
}

template <class Check>
void for_random_groups(const Check& check) {
  Random random(11);
  for (int round = 0; round < 100; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const int ranks = random.between(1, 5);
    const int experts = random.between(1, 40);
    Groups groups = random_groups(random, ranks, experts);
    check(plan_of(ranks, experts), groups);
  }
}

TEST(ScaleTiles, AreThoseOfAllGroupsInOrder) {
  for_random_groups([](const Plan& plan, Groups& made) {
    const RowStarts starts = made.starts();
    std::uint32_t index = 0;
    for (int group = 0; group < plan.groups(); ++group)
      for (std::uint32_t first = 0; first < starts.filled[group]; first += kScaleTileRows, ++index) {
        const ScaleTile tile = find_tile(starts, plan.groups(), index);
        ASSERT_EQ(tile.group, group) << "tile " << index;
        ASSERT_EQ(tile.first_row, first) << "tile " << index;
      }
    ASSERT_EQ(count_tiles(starts, plan.groups()), index);
  });
}

// So the kernel, which stores tiles alone, leaves no padding row without its scale of 0.
TEST(ScaleTiles, ReachThePaddingOfTheirGroups) {
  for_random_groups([](const Plan& plan, Groups& made) {
    for (std::size_t group = 0; group < static_cast<std::size_t>(plan.groups()); ++group)
      ASSERT_LE(made.group[group + 1] - made.group[group], scale_blocks(made.filled[group]) * kScaleTileRows);
  });
}

TEST(ScaleTiles, KnowTheSourceOfEveryRow) {
  for_random_groups([](const Plan& plan, Groups& made) {
    const RowStarts starts = made.starts();
    for (int group = 0; group < plan.groups(); ++group)
      for (std::size_t row = 0; row < made.sources[static_cast<std::size_t>(group)].size(); ++row)
        ASSERT_EQ(source_of(plan, starts, group, static_cast<std::uint32_t>(row)),
                  made.sources[static_cast<std::size_t>(group)][row])
            << "group " << group << ", row " << row;
  });
}

TEST(ScaleTiles, AreForScalesThatLieApart) {
  EXPECT_EQ(scattered_scale_words(ScaleLayout::transposed, 4, 56, 7168), 56);
  EXPECT_EQ(scattered_scale_words(ScaleLayout::tiled, 1, 448, 3584), 112);
  EXPECT_EQ(scattered_scale_words(ScaleLayout::tiled, 1, 5, 80), 2) << "the last word is filled up";
  EXPECT_EQ(scattered_scale_words(ScaleLayout::row_major, 1, 224, 7168), 0);
  EXPECT_EQ(scattered_scale_words(ScaleLayout::none, 0, 0, 14336), 0);
  EXPECT_EQ(scattered_scale_words(ScaleLayout::tiled, 1, 5, 120), 0) << "scales of a message at an odd place";
  EXPECT_EQ(scale_strips({nullptr, ScaleLayout::transposed, 4, 56, 8}), 7);
  EXPECT_EQ(scale_strips({nullptr, ScaleLayout::tiled, 1, 33, 8}), 2);
}

}  // namespace
}  // namespace ferry::cuda
