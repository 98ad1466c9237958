// `ferry bench --simulate`: the traffic it counts is what exchanges report and what the wire's formula says; loads,
// bounds and the other ways are checked on cases small enough to follow by hand.
#include "tool/simulate/simulate.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "conformance/rounds/rank_round.h"

namespace ferry::app {
namespace {

using conformance::ScenarioSettings;

Routing routing_of(const test::RankInput& rank) {
  Routing routing;
  for (const std::int64_t id : rank.topk_ids) routing.ids.push_back(static_cast<std::int32_t>(id));
  return routing;
}

// By (ranks, format, reduction of the combine, routing, whether the exchange is made with either).
using Parameters = std::tuple<int, const char*, Reduction, const char*, bool>;

class SimulatedTraffic : public testing::TestWithParam<Parameters> {
 protected:
  SimulatedTraffic() {
    const auto& [ranks, format, reduction, routing, chooses] = GetParam();
    settings_.shape = {ranks, 3 * ranks + 1, 4, 23, 96};
    settings_.options = conformance::options_for(format, chooses ? Reduction::either : reduction);
    settings_.chosen = reduction;
    settings_.routing = routing;
    settings_.seed = 5;
    scenario_ = conformance::make_scenario(settings_);
  }

  // [source]
  std::vector<SourceTraffic> simulated() const {
    SourceRound round(settings_.shape, settings_.options, settings_.chosen);
    std::vector<SourceTraffic> traffic(static_cast<std::size_t>(settings_.shape.ranks));
    for (std::size_t source = 0; source < traffic.size(); ++source) {
      const Routing routing = routing_of(scenario_.round.ranks[source]);
      round.route(static_cast<int>(source), routing);
      round.count(traffic[source]);
    }
    return traffic;
  }

  ScenarioSettings settings_;
  conformance::Scenario scenario_;
};

TEST_P(SimulatedTraffic, IsWhatExchangesReport) {
  const std::vector<SourceTraffic> traffic = simulated();
  std::vector<Stats> stats(traffic.size());
  run_ranks(settings_.shape.ranks, [&](World& world) {
    Exchange exchange(world, settings_.shape, settings_.options);
    conformance::run_round(exchange, scenario_, conformance::Form::split);
    stats[static_cast<std::size_t>(world.rank())] = exchange.stats();
  });
  for (std::size_t rank = 0; rank < traffic.size(); ++rank) {
    for (std::size_t peer = 0; peer < traffic.size(); ++peer) {
      SCOPED_TRACE(testing::Message() << "rank " << rank << " to " << peer);
      const PairTraffic& there = traffic[rank].dispatched[peer];
      const PairTraffic& back = traffic[peer].returned[rank];
      EXPECT_EQ(there.messages, stats[rank].messages_sent[peer]);
      const std::uint64_t bytes = there.put_bytes() + back.put_bytes();
      EXPECT_EQ(rank == peer ? bytes - there.count_bytes : bytes, stats[rank].bytes_sent[peer]);
    }
  }
}

// docs/protocol.md and the sizes of docs/formats.md, written out once more, with the ids as the test sees them.
TEST_P(SimulatedTraffic, IsTheFormulaOfTheWire) {
  const auto& [ranks, format, reduction, routing, chooses] = GetParam();
  const std::uint64_t message = std::string(format) == "bf16" ? 192 : 112;  // mxfp8: 96 + 3, up to a multiple of 16
  const std::vector<SourceTraffic> traffic = simulated();
  for (std::size_t source = 0; source < traffic.size(); ++source) {
    const std::vector<std::int64_t>& ids = scenario_.round.ranks[source].topk_ids;
    const std::uint64_t tokens = ids.size() / 4;
    for (int rank = 0; rank < ranks; ++rank) {
      SCOPED_TRACE(testing::Message() << "source " << source << ", rank " << rank);
      const int first = rank == 0 ? 0 : 3 * rank + 1;  // 3 * ranks + 1 experts: the first rank owns one more
      const int experts = rank == 0 ? 4 : 3;
      std::uint64_t messages = 0;
      std::uint64_t rows = 0;
      for (std::size_t token = 0; token < tokens; ++token) {
        std::uint64_t of_token = 0;
        for (std::size_t k = 0; k < 4; ++k) {
          const std::int64_t id = ids[token * 4 + k];
          of_token += id >= first && id < first + experts ? 1 : 0;
        }
        rows += of_token;
        messages += of_token != 0 ? 1 : 0;
      }
      const std::uint64_t results = reduction == Reduction::exact ? rows : messages;
      const bool own = source == static_cast<std::size_t>(rank);
      const PairTraffic& there = traffic[source].dispatched[static_cast<std::size_t>(rank)];
      EXPECT_EQ(there.bytes(), messages * message + (own ? 0 : tokens * 8 * 4 + 64) +
                                   4 * static_cast<std::uint64_t>(experts) + 8 * (messages + 1));
      EXPECT_EQ(there.operations, messages + (own ? 2 : 4));
      const PairTraffic& back = traffic[source].returned[static_cast<std::size_t>(rank)];
      EXPECT_EQ(back.bytes(), results * (2 * 96 + 8));
      EXPECT_EQ(back.operations, results);
      EXPECT_EQ(traffic[source].closed[static_cast<std::size_t>(rank)].bytes(), 8u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rounds, SimulatedTraffic,
                         testing::Combine(testing::Values(2, 4, 8), testing::Values("bf16", "mxfp8"),
                                          testing::Values(Reduction::by_rank, Reduction::exact),
                                          testing::Values("ragged", "zipf"), testing::Bool()));

// Four ranks in nodes of two, an expert on each; 64 columns: a bf16 message and a result are 128 bytes.
constexpr std::uint64_t kMessage = 128 + 8;
constexpr std::uint64_t kTable = 64 + 3 * 8;  // header, and an entry for each of 3 ids
constexpr std::uint64_t kCounts = 4;
constexpr std::uint64_t kSignal = 8;

SimulatedCase four_ranks(Reduction reduction = Reduction::by_rank) {
  SimulatedCase of;
  of.bench.shape = {.ranks = 4, .experts = 4, .top_k = 3, .max_tokens = 1, .hidden = 64};
  of.bench.reduction = reduction;
  of.cluster.ranks = 4;
  of.cluster.ranks_per_node = 2;
  of.cluster.speed = {LinkSpeed{100e9, 2e-6, 0}, LinkSpeed{10e9, 5e-6, 0}};
  return of;
}

Simulated one_token(Reduction reduction = Reduction::by_rank) {
  Simulation simulation(four_ranks(reduction));
  simulation.add(1, Routing{{2, 0, 3}, {}});  // rank 1's token names rank 0, and both of the other node
  return simulation.result();
}

TEST(Simulation, PutsEachMessageOnTheLinkToItsRank) {
  const Simulated simulated = one_token();
  const PhaseLoad& load = simulated.load(Way::direct).dispatch;
  EXPECT_EQ(load.sent(1, LinkKind::nvlink).bytes, kMessage + kTable + kCounts + kSignal);
  EXPECT_EQ(load.received(0, LinkKind::nvlink).bytes, kMessage + kTable + kCounts + kSignal);
  EXPECT_EQ(load.sent(1, LinkKind::nic).bytes, 2 * (kMessage + kTable + kCounts + kSignal));
  EXPECT_EQ(load.sent(1, LinkKind::nic).operations, 2u * (1 + 4));
  EXPECT_EQ(load.received(2, LinkKind::nic).bytes, kMessage + kTable + kCounts + kSignal);
  EXPECT_EQ(load.total(LinkKind::nvlink).bytes, kMessage + kTable + kCounts + kSignal);
  const PhaseLoad& combine = simulated.load(Way::direct).combine;
  EXPECT_EQ(combine.received(1, LinkKind::nic).bytes, 2 * kMessage);
  EXPECT_EQ(combine.received(1, LinkKind::nvlink).bytes, kMessage);
  EXPECT_EQ(combine.sent(1, LinkKind::nic).bytes, 2 * kSignal);  // the round is closed
}

TEST(Simulation, ForwardsOnceToANodeAndFansOutThere) {
  const Simulated simulated = one_token();
  const PhaseLoad& load = simulated.load(Way::forwarded).dispatch;
  EXPECT_EQ(load.sent(1, LinkKind::nic).bytes, kMessage + kTable + 2 * kCounts + kSignal);
  EXPECT_EQ(load.received(3, LinkKind::nic).bytes, kMessage + kTable + 2 * kCounts + kSignal);  // rank 1's place
  EXPECT_EQ(load.received(2, LinkKind::nic).bytes, 0u);
  EXPECT_EQ(load.received(2, LinkKind::nvlink).bytes, kMessage + kTable + kCounts + kSignal);
  EXPECT_EQ(load.sent(1, LinkKind::nvlink).bytes, kMessage + kTable + kCounts + kSignal);  // to rank 0, as before
  const PhaseLoad& combine = simulated.load(Way::forwarded).combine;
  EXPECT_EQ(combine.received(1, LinkKind::nic).bytes, kMessage);  // the node's sum
  EXPECT_EQ(combine.sent(2, LinkKind::nvlink).bytes, kMessage);
  EXPECT_EQ(simulated.combine_bound(Way::forwarded).seconds, 2e-6 + 5e-6 + static_cast<double>(kMessage) / 10e9);
}

TEST(Simulation, CannotSumExactRowsOnTheWay) {
  const Simulated simulated = one_token(Reduction::exact);
  EXPECT_EQ(simulated.load(Way::forwarded).combine.received(1, LinkKind::nic).bytes, 2 * kMessage);
  EXPECT_EQ(simulated.combine_bound(Way::forwarded).seconds, simulated.combine_bound(Way::direct).seconds);
}

TEST(Simulation, OwnEntriesTakeThePlaceOfTheTable) {
  const Simulated simulated = one_token();
  EXPECT_EQ(simulated.load(Way::own_entries).dispatch.received(2, LinkKind::nic).bytes,
            kMessage + 64 + 16 + kCounts + kSignal);
  EXPECT_EQ(simulated.load(Way::forwarded_own_entries).dispatch.sent(1, LinkKind::nic).bytes,
            kMessage + 64 + 2 * (16 + kCounts) + kSignal);
}

TEST(Simulation, GivesTheLastRankOfASmallNodeWhatHasNoPlaceThere) {
  SimulatedCase of = four_ranks();
  of.bench.shape = {.ranks = 5, .experts = 5, .top_k = 1, .max_tokens = 1, .hidden = 64};
  of.cluster.ranks = 5;
  Simulation simulation(of);
  simulation.add(3, Routing{{4}, {}});  // the third node is rank 4 alone
  const Simulated& simulated = simulation.result();
  EXPECT_EQ(simulated.of.cluster.nodes(), 3);
  EXPECT_EQ(simulated.load(Way::forwarded).dispatch.received(4, LinkKind::nic).bytes,
            kMessage + 64 + 8 + kCounts + kSignal);
}

TEST(LeastTime, IsTheBusiestLinksAndTheLongestLatency) {
  Cluster cluster = four_ranks().cluster;
  PhaseLoad load(cluster);
  EXPECT_EQ(load.least_time(false).seconds, 0);
  EXPECT_EQ(load.least_time(false).limit(), "nothing travels");
  load.add(0, 0, 1'000'000, 1);  // on no link
  EXPECT_EQ(load.least_time(true).seconds, 0);
  load.add(0, 1, 1'000'000, 1);
  EXPECT_DOUBLE_EQ(load.least_time(false).seconds, 2e-6 + 1e-5);
  EXPECT_EQ(load.least_time(false).limit(), "nvlink out of rank 0");
  load.add(0, 2, 200'000, 5);
  load.add(1, 2, 200'000, 5);
  EXPECT_DOUBLE_EQ(load.least_time(false).seconds, 5e-6 + 4e-5);
  EXPECT_DOUBLE_EQ(load.least_time(true).seconds, 7e-6 + 4e-5);
  EXPECT_EQ(load.least_time(false).limit(), "nic into rank 2");
  cluster.speed[1].operations_per_second = 1e5;
  PhaseLoad slow(cluster);
  slow.add(0, 2, 8, 3);
  EXPECT_DOUBLE_EQ(slow.least_time(false).seconds, 5e-6 + 3e-5);
  EXPECT_EQ(slow.least_time(false).limit(), "nic out of rank 0, operations");
}

TEST(NodeLimit, KeepsATokensExpertsInFewNodes) {
  const Shape shape{.ranks = 12, .experts = 41, .top_k = 6, .max_tokens = 200, .hidden = 32};
  for (const RoutingKind kind : {RoutingKind::uniform, RoutingKind::zipf}) {
    for (const double exponent : {1.0, 10.0}) {
      const Routing routing = make_routing(kind, exponent, shape, 3, {2, 3});
      std::set<int> all_nodes;
      for (std::size_t token = 0; token < 200; ++token) {
        std::set<int> nodes;
        std::set<int> experts;
        for (std::size_t k = 0; k < 6; ++k) {
          experts.insert(routing.ids[token * 6 + k]);
          nodes.insert(owner_of(shape, routing.ids[token * 6 + k]) / 3);
        }
        EXPECT_LE(nodes.size(), 2u);
        EXPECT_EQ(experts.size(), 6u);
        all_nodes.merge(nodes);
      }
      if (kind == RoutingKind::uniform) {
        EXPECT_EQ(all_nodes.size(), 4u);
      }
    }
  }
  EXPECT_THROW(make_routing(RoutingKind::uniform, 1, shape, 3, {1, 1}), Error);
}

}  // namespace
}  // namespace ferry::app
