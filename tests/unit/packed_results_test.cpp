// Packed results: the slots that a source and its expert ranks find, each from its own view, against a list.
#include "cpu/steps/packed_results.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "conformance/oracle/routing_patterns.h"
#include "cpu/steps/combine_receive.h"
#include "cpu/steps/combine_send.h"
#include "support/one_rank.h"

namespace ferry {
namespace {

constexpr Epoch kEpoch = kFirstEpoch;

// All ranks after the routing of a round has come: every one has the tables of all.
std::vector<test::Rank> routed_ranks(const Shape& shape, bool exact, const test::Routing& routing) {
  std::vector<test::Rank> ranks;
  for (int rank = 0; rank < shape.ranks; ++rank) ranks.emplace_back(shape, rank, exact, true);
  for (int source = 0; source < shape.ranks; ++source) {
    const test::RankRouting& routed = routing[static_cast<std::size_t>(source)];
    const RoutingEntry* table = ranks[static_cast<std::size_t>(source)].route_ids(routed.topk_ids);
    for (test::Rank& rank : ranks) {
      if (rank.plan.rank != source)
        std::memcpy(rank.memory.local(rank.plan.map.table(kEpoch, source)), table,
                    routed.topk_ids.size() * sizeof(RoutingEntry));
      const RoutingHeader header{static_cast<std::uint32_t>(routed.num_tokens), 1.0f};
      std::memcpy(rank.memory.local(rank.plan.map.header(kEpoch, source)), &header, sizeof(header));
    }
  }
  return ranks;
}

// The results of a source as it should number them: (expert rank, token, k, or 0 of a partial sum), one slot after
// another.
std::vector<std::tuple<int, int, int>> listed(const Shape& shape, bool exact, const test::RankRouting& routed) {
  std::set<std::tuple<int, int, int>> results;
  for (int token = 0; token < routed.num_tokens; ++token)
    for (int k = 0; k < shape.top_k; ++k)
      if (const auto id = routed.topk_ids[static_cast<std::size_t>(token * shape.top_k + k)]; id >= 0)
        results.insert({owner_of(shape, static_cast<int>(id)), token, exact ? k : 0});
  return {results.begin(), results.end()};
}

void check(const Shape& shape, bool exact, const test::Routing& routing) {
  std::vector<test::Rank> ranks = routed_ranks(shape, exact, routing);
  std::vector<cpu::PackedResults> packed;
  std::vector<PackedSlots> slots;
  for (test::Rank& rank : ranks) {
    packed.emplace_back(rank.plan).number_slots(rank.plan, rank.memory, kEpoch);
    slots.push_back(packed.back().slots());
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) ranks[rank].plan.packed = &slots[rank];

  for (int source = 0; source < shape.ranks; ++source) {
    Plan& at_home = ranks[static_cast<std::size_t>(source)].plan;
    std::map<std::pair<int, int>, int> seen;  // (rank, token): its results so far
    std::map<int, std::uint32_t> sent;        // rank: its results so far
    std::size_t slot = 0;
    for (const auto& [rank, token, k] : listed(shape, exact, routing[static_cast<std::size_t>(source)])) {
      const std::size_t offset = at_home.map.begin(HeapMap::kResults) + slot++ * at_home.map.result_slot_bytes();
      const Plan& at_expert_rank = ranks[static_cast<std::size_t>(rank)].plan;
      const cpu::ResultSlot found = cpu::packed_slot(at_expert_rank, {source, token}, seen[{rank, token}]++);
      ASSERT_EQ(at_home.map.result(token, found.index), offset) << to_string(shape);
      ASSERT_EQ(found.sent_index, sent[rank]++);

      TokenScratch scratch;
      const SerialGroup alone;
      test::LocalMemory& memory = ranks[static_cast<std::size_t>(source)].memory;
      const Step step{at_home, memory, alone, kEpoch, kEpoch, cpu::SerialLookup{}, PortableOps{}};
      cpu::find_own_results(step, token, token % 2 == 1, scratch);  // the order of the sum moves no slot
      const TokenResults& results = scratch.results;
      int i = 0;
      while (i < results.count && !(results.rank[i] == rank && (!exact || results.k[i] == k))) ++i;
      ASSERT_LT(i, results.count);
      ASSERT_EQ(at_home.map.result(token, results.index[i]), offset) << to_string(shape);
    }
  }
}

// I9: both ends find the same slot, and what one rank sends lies together, here and where it is sent from.
TEST(PackedResults, AreNumberedAlikeRankByRankAndTokenByToken) {
  test::Random random(8);
  for (int trial = 0; trial < 100; ++trial) {
    const Shape shape = test::random_shape(random, 8);
    const char* routings[] = {"ragged", "some_none", "zipf", "empty_ranks"};
    check(shape, trial % 2 == 0, test::make_routing(routings[trial / 2 % 4], shape, random));
  }
}

// A round of fewer tokens after one of more: nothing of the former is left.
TEST(PackedResults, AreNumberedAnewInEveryRound) {
  const Shape shape{.ranks = 3, .experts = 6, .top_k = 2, .max_tokens = 8, .hidden = 32};
  test::Random random(9);
  test::Rank rank(shape, 1, true, true);
  cpu::PackedResults packed(rank.plan);
  const PackedSlots slots = packed.slots();
  for (const int tokens : {8, 3}) {
    test::RankRouting routed = test::make_routing("uniform", shape, random)[1];
    routed.topk_ids.resize(static_cast<std::size_t>(tokens * shape.top_k));
    rank.route_ids(routed.topk_ids);
    const RoutingHeader header{static_cast<std::uint32_t>(tokens), 1.0f};
    std::memcpy(rank.memory.local(rank.plan.map.header(kEpoch, 1)), &header, sizeof(header));
    packed.number_slots(rank.plan, rank.memory, kEpoch);
    std::uint32_t results_before = 0;
    for (const std::int64_t id : routed.topk_ids) results_before += owner_of(shape, static_cast<int>(id)) < 1 ? 1 : 0;
    EXPECT_EQ(slots.begin[0], 0u);
    EXPECT_EQ(slots.begin[1], results_before);
    EXPECT_EQ(slots.begin_at[1], results_before);
  }
}

}  // namespace
}  // namespace ferry
