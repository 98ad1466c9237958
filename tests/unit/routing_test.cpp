// Routing entries, and the questions that both directions ask of a table: rows, named ranks, slots.
#include "ferry/detail/layout/routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "conformance/oracle/routing_patterns.h"
#include "cpu/steps/lookup/serial_lookup.h"
#include "cpu/steps/row_starts.h"
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

// I3: the position in expert is how many earlier entries of this source name it.
TEST(RouteEntries, CountsEarlierEntriesOfTheSameExpert) {
  const Shape shape{.ranks = 2, .experts = 5, .top_k = 3, .max_tokens = 40, .hidden = 32};
  test::Random random(4);
  for (int trial = 0; trial < 20; ++trial) {
    Rank rank(shape, 1);
    const test::Routing routing = test::make_routing(trial % 2 == 0 ? "zipf" : "some_none", shape, random);
    const std::vector<std::int64_t>& ids = routing[1].topk_ids;
    const RoutingEntry* table = rank.route_ids(ids);
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

TEST(RouteEntries, DropsEntriesOfMaskedRanks) {
  Rank rank({.ranks = 3, .experts = 6, .top_k = 2, .max_tokens = 2, .hidden = 32}, 0);
  rank.masked[1] = 1;
  std::uint64_t dropped = 0;
  const RoutingEntry* table = rank.route_ids({2, 0, 3, -1}, &dropped);
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
    const RoutingEntry* table = source.route_ids(ids);
    for (int token = 0; token < shape.max_tokens; ++token) {
      const RoutingEntry* entries = table + token * shape.top_k;
      std::set<int> expected;
      for (int k = 0; k < shape.top_k; ++k) {
        const std::int64_t id = ids[static_cast<std::size_t>(token * shape.top_k + k)];
        if (id >= 0) expected.insert(owner_of(shape, static_cast<int>(id)));
      }
      NamedRanks named;
      cpu::list_named_ranks(source.plan, entries, named);
      ASSERT_EQ(std::vector<int>(named.rank, named.rank + named.count),
                std::vector<int>(expected.begin(), expected.end()));
      for (int j = 0; j < named.count; ++j) {
        Plan at_expert_rank = source.plan;
        at_expert_rank.rank = named.rank[j];
        ASSERT_EQ(cpu::partial_index(at_expert_rank, entries), j);
      }
    }
  }
}

// A fused shared expert has the tokens of its share, at their own rank, and no others.
TEST(FindDestinations, AreTheRanksOfTheIdsAndTheOwnOneForTheSharedExpert) {
  Rank rank({.ranks = 3, .experts = 6, .top_k = 2, .max_tokens = 4, .hidden = 32}, 1);
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
    cpu::SerialLookup{}.destinations(SerialGroup{}, rank.plan, args, token, to);
    EXPECT_EQ(std::vector<int>(to.rank, to.rank + to.count), expected[static_cast<std::size_t>(token)]);
  }
}

// A receiver that knows the counts of all sources, and their tables.
struct Arrivals {
  Arrivals(const Shape& shape, const test::Routing& routing, int rank) : receiver(shape, rank) {
    for (int source = 0; source < shape.ranks; ++source) {
      Rank sender(shape, source);
      const std::vector<std::int64_t>& ids = routing[static_cast<std::size_t>(source)].topk_ids;
      const RoutingEntry* table = sender.route_ids(ids);
      tables.emplace_back(table, table + ids.size());
      const auto* counts =
          reinterpret_cast<const std::uint32_t*>(sender.memory.local(sender.plan.map.sent_counts(kFirstEpoch)));
      const ExpertRange mine = receiver.plan.experts_of(rank);
      auto* to = receiver.memory.local(receiver.plan.map.counts(kFirstEpoch, source));
      std::copy_n(counts + mine.first, mine.count, reinterpret_cast<std::uint32_t*>(to));
    }
  }

  // How often each row is found, over all tokens of all sources.
  std::vector<int> times_found(const RowStarts& starts) const {
    std::vector<int> times(starts.group[receiver.plan.groups()]);
    const auto top_k = static_cast<std::size_t>(receiver.plan.shape.top_k);
    LocalRows found;
    for (std::size_t source = 0; source < tables.size(); ++source) {
      for (std::size_t at = 0; at < tables[source].size(); at += top_k) {
        cpu::SerialLookup{}.local_rows(SerialGroup{}, receiver.plan, starts,
                                       {static_cast<int>(source), static_cast<int>(at / top_k)},
                                       tables[source].data() + at, found);
        for (int i = 0; i < found.count; ++i) ++times.at(found.row[i]);
      }
    }
    return times;
  }

  Rank receiver;
  std::vector<std::vector<RoutingEntry>> tables;
};

struct StartsMemory {
  explicit StartsMemory(const Plan& plan)
      : of_source(static_cast<std::size_t>(plan.shape.ranks * plan.local_experts())),
        group(static_cast<std::size_t>(plan.groups() + 1)),
        filled(static_cast<std::size_t>(plan.groups())),
        tiles(static_cast<std::size_t>(plan.groups())),
        tokens(static_cast<std::size_t>(plan.shape.ranks) + 1) {}
  RowStartsToFill starts() { return {of_source.data(), group.data(), filled.data(), tiles.data(), tokens.data()}; }
  std::vector<std::uint32_t> of_source, group, filled, tiles, tokens;
};

// I4: rows of all sources fill every group without a gap, whatever order messages come in.
TEST(FindRowStarts, GivesEveryRowOnce) {
  const Shape shape{.ranks = 3, .experts = 7, .top_k = 3, .max_tokens = 9, .hidden = 32};
  test::Random random(6);
  for (const int alignment : {1, 4, 128}) {
    Arrivals arrivals(shape, test::make_routing("ragged", shape, random), 1);
    Plan& plan = arrivals.receiver.plan;
    plan.alignment = alignment;
    plan.shared_groups = 1;
    StartsMemory memory(plan);
    const RowStartsToFill starts = memory.starts();
    constexpr int kSharedRows = 5;
    cpu::find_row_starts(plan, arrivals.receiver.memory, kFirstEpoch, {kSharedRows}, starts);
    EXPECT_EQ(starts.filled[0], static_cast<std::uint32_t>(kSharedRows));
    std::vector<int> written = arrivals.times_found(starts);
    for (std::uint32_t row = 0; row < starts.filled[0]; ++row) ++written[row];
    for (int g = 0; g < plan.groups(); ++g) {
      const std::uint32_t begin = starts.group[g];
      EXPECT_EQ(begin % static_cast<std::uint32_t>(alignment), 0u);
      for (std::uint32_t row = begin; row < starts.group[g + 1]; ++row)
        EXPECT_EQ(written[row], row < begin + starts.filled[g] ? 1 : 0) << "group " << g << ", alignment " << alignment;
    }
  }
}

// I4: of_source counts from the first row of its group, on every backend. A group without rows, and padding to 128
// rows, lie between what the sources counted and where the rows are.
TEST(FindRowStarts, CountsARowFromTheStartOfItsGroup) {
  const Shape shape{.ranks = 2, .experts = 3, .top_k = 1, .max_tokens = 4, .hidden = 32};  // rank 0 has experts 0 and 1
  test::Routing routing(2);
  routing[0].topk_ids = {1, 0, 1, 1};
  routing[1].topk_ids = {1, 2, 1, 2};
  for (test::RankRouting& source : routing) source.num_tokens = 4;
  for (const bool first_is_empty : {false, true}) {
    if (first_is_empty) routing[0].topk_ids[1] = -1;
    Arrivals arrivals(shape, routing, 0);
    Plan& plan = arrivals.receiver.plan;
    ASSERT_EQ(plan.local_experts(), 2);
    plan.alignment = 128;
    StartsMemory memory(plan);
    const RowStartsToFill starts = memory.starts();
    cpu::find_row_starts(plan, arrivals.receiver.memory, kFirstEpoch, {}, starts);
    const std::uint32_t second = first_is_empty ? 0 : 128;
    EXPECT_EQ(starts.group[1], second);
    EXPECT_EQ(memory.of_source, (std::vector<std::uint32_t>{0, 0, first_is_empty ? 0u : 1u, 3}));  // [source][expert]
    LocalRows found;
    cpu::SerialLookup{}.local_rows(SerialGroup{}, plan, starts, {1, 2}, arrivals.tables[1].data() + 2, found);
    ASSERT_EQ(found.count, 1);
    EXPECT_EQ(found.row[0], second + 3 + 1);  // three of source 0 and one of its own come before
  }
}

}  // namespace
}  // namespace ferry
