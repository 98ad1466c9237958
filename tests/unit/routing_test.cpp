// Routing entries, and the questions that both directions ask of a table: rows, named ranks, slots.
#include "ferry/detail/layout/routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "conformance/oracle/routing_patterns.h"
#include "support/one_rank.h"

namespace ferry {
namespace {

using test::Rank;

TEST(EntryCode, KeepsExpertAndRankWithin) {
  for (const int experts : {1, 2, 3, 7, 8, 255, 256, 1000}) {
    const EntryCode code{id_bits(experts)};
    const std::uint32_t most = code.bits == 32 ? 0 : ~std::uint32_t{0} >> code.bits;
    for (const int expert : {0, experts / 2, experts - 1}) {
      for (const std::uint32_t rank : {0u, 1u, most}) {
        const std::uint32_t packed = code.pack(expert, rank);
        EXPECT_EQ(code.expert(packed), expert);
        EXPECT_EQ(code.position_in_expert(packed), rank);
        EXPECT_NE(packed, 0u);
      }
    }
    EXPECT_EQ(code.expert(0), -1);
  }
}

TEST(AlignRow, RoundsUp) {
  EXPECT_EQ(align_row(0, 4), 0u);
  EXPECT_EQ(align_row(1, 4), 4u);
  EXPECT_EQ(align_row(4, 4), 4u);
  EXPECT_EQ(align_row(129, 128), 256u);
  EXPECT_EQ(align_row(5, 1), 5u);
}

// I3: the rank within an expert is how many earlier entries of this source name it.
TEST(RankEntries, CountsEarlierEntriesOfTheSameExpert) {
  const Shape shape{2, 5, 3, 40, 32};
  test::Random random(4);
  for (int trial = 0; trial < 20; ++trial) {
    Rank rank(shape, 1);
    const test::Routing routing = test::make_routing(trial % 2 == 0 ? "zipf" : "some_none", shape, random);
    const std::vector<std::int64_t>& ids = routing[1].topk_ids;
    const RoutingEntry* table = rank.rank_ids(ids);
    const auto* counts =
        reinterpret_cast<const std::uint32_t*>(rank.memory.local(rank.plan.map.sent_counts(kFirstEpoch)));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ASSERT_EQ(rank.plan.code.expert(table[i].code), ids[i]);
      if (ids[i] < 0) continue;
      ASSERT_EQ(rank.plan.code.position_in_expert(table[i].code),
                std::count(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(i), ids[i]));
    }
    for (int expert = 0; expert < shape.experts; ++expert)
      EXPECT_EQ(counts[expert], std::count(ids.begin(), ids.end(), expert));
  }
}

TEST(RankEntries, DropsEntriesOfMaskedRanks) {
  Rank rank({3, 6, 2, 2, 32}, 0);
  rank.masked[1] = 1;
  std::uint64_t dropped = 0;
  const RoutingEntry* table = rank.rank_ids({2, 0, 3, -1}, &dropped);
  EXPECT_EQ(dropped, 2u);
  EXPECT_EQ(rank.plan.code.expert(table[0].code), -1);
  EXPECT_EQ(rank.plan.code.expert(table[1].code), 0);
}

// I9: source and expert rank number the slots of a token alike, both from the source's table.
TEST(NamedRanks, AreDistinctAscendingAndNumberTheSlots) {
  test::Random random(5);
  for (int trial = 0; trial < 50; ++trial) {
    Shape shape = test::random_shape(random, 8);
    Rank source(shape, 0);
    const std::vector<std::int64_t> ids = test::make_routing("some_none", shape, random)[0].topk_ids;
    const RoutingEntry* table = source.rank_ids(ids);
    for (int token = 0; token < shape.max_tokens; ++token) {
      const RoutingEntry* entries = table + token * shape.top_k;
      std::set<int> expected;
      for (int k = 0; k < shape.top_k; ++k) {
        const std::int64_t id = ids[static_cast<std::size_t>(token * shape.top_k + k)];
        if (id >= 0) expected.insert(owner_of(shape, static_cast<int>(id)));
      }
      NamedRanks named;
      list_named_ranks(source.plan, entries, named);
      ASSERT_EQ(std::vector<int>(named.rank, named.rank + named.count),
                std::vector<int>(expected.begin(), expected.end()));
      for (int j = 0; j < named.count; ++j) {
        Plan at_expert_rank = source.plan;
        at_expert_rank.rank = named.rank[j];
        ASSERT_EQ(partial_index(at_expert_rank, entries), j);
      }
    }
  }
}

// A fused shared expert has the tokens of its share, at their own rank, and no others.
TEST(FindDestinations, AreTheRanksOfTheIdsAndTheOwnOneForTheSharedExpert) {
  Rank rank({3, 6, 2, 4, 32}, 1);
  rank.plan.shared_groups = 1;
  const std::vector<std::int64_t> ids = {0, 4, 1, -1, 2, 3, -1, 5};
  DispatchArgs args;
  args.num_tokens = 4;
  args.ids = {ids.data(), true};
  args.shared_begin = 1;
  args.shared_end = 3;
  const std::vector<std::vector<int>> expected = {{0, 2}, {1, 0}, {1}, {2}};
  for (int token = 0; token < args.num_tokens; ++token) {
    NamedRanks to;
    find_destinations(SerialGroup{}, rank.plan, args, token, to);
    EXPECT_EQ(std::vector<int>(to.rank, to.rank + to.count), expected[static_cast<std::size_t>(token)]);
  }
}

// I4: rows of all sources fill every group without a gap, whatever order messages come in.
TEST(FindRowStarts, GivesEveryRowOnce) {
  const Shape shape{3, 7, 3, 9, 32};
  test::Random random(6);
  const test::Routing routing = test::make_routing("ragged", shape, random);
  Rank receiver(shape, 1);
  receiver.plan.alignment = 4;
  receiver.plan.shared_groups = 1;
  std::vector<std::vector<RoutingEntry>> tables;
  for (int source = 0; source < shape.ranks; ++source) {
    Rank sender(shape, source);
    const std::vector<std::int64_t>& ids = routing[static_cast<std::size_t>(source)].topk_ids;
    const RoutingEntry* table = sender.rank_ids(ids);
    tables.emplace_back(table, table + ids.size());
    const auto* counts =
        reinterpret_cast<const std::uint32_t*>(sender.memory.local(sender.plan.map.sent_counts(kFirstEpoch)));
    const ExpertRange mine = receiver.plan.experts_of(1);
    std::copy_n(counts + mine.first, mine.count,
                reinterpret_cast<std::uint32_t*>(receiver.memory.local(receiver.plan.map.counts(kFirstEpoch, source))));
  }
  const int groups = receiver.plan.groups();
  std::vector<std::uint32_t> of_source(static_cast<std::size_t>(shape.ranks * receiver.plan.local_experts()));
  std::vector<std::uint32_t> group(static_cast<std::size_t>(groups + 1)), filled(static_cast<std::size_t>(groups)),
      tiles(static_cast<std::size_t>(groups)), tokens(static_cast<std::size_t>(shape.ranks) + 1);
  const RowStarts starts{of_source.data(), group.data(), filled.data(), tiles.data(), tokens.data()};
  constexpr int kSharedRows = 5;
  find_row_starts(receiver.plan, receiver.memory, kFirstEpoch, kSharedRows, starts);
  EXPECT_EQ(filled[0], static_cast<std::uint32_t>(kSharedRows));
  std::vector<int> written(group.back(), 0);
  for (std::uint32_t row = 0; row < filled[0]; ++row) ++written[row];
  LocalRows found;
  for (int source = 0; source < shape.ranks; ++source) {
    const std::vector<RoutingEntry>& table = tables[static_cast<std::size_t>(source)];
    for (std::size_t at = 0; at < table.size(); at += static_cast<std::size_t>(shape.top_k)) {
      const int token = static_cast<int>(at) / shape.top_k;
      find_local_rows(SerialGroup{}, receiver.plan, starts, {source, token}, table.data() + at, found);
      for (int i = 0; i < found.count; ++i) ++written.at(found.row[i]);
    }
  }
  for (int g = 0; g < groups; ++g) {
    const std::uint32_t begin = group[static_cast<std::size_t>(g)];
    EXPECT_EQ(begin % 4, 0u);
    for (std::uint32_t row = begin; row < group[static_cast<std::size_t>(g) + 1]; ++row)
      EXPECT_EQ(written[row], row < begin + filled[static_cast<std::size_t>(g)] ? 1 : 0) << "group " << g;
  }
}

}  // namespace
}  // namespace ferry
