// When a rank may say what: the signals that few outcomes would miss, looked at one by one.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cpu/steps/combine_send.h"
#include "exchange/sizes/sizes.h"
#include "support/all_begin.h"
#include "support/session.h"

namespace ferry::test {
namespace {

constexpr Shape kShape{.ranks = 3, .experts = 6, .top_k = 2, .max_tokens = 4, .hidden = 32};

// A fabric that remembers which words were waited for.
struct WatchedCalls : SerialFabricDefaults {
  std::vector<std::size_t> words;
  std::vector<Epoch> targets;
  int rank() const { return 0; }
  int size() const { return kShape.ranks; }
  std::byte* local(std::size_t) const { return nullptr; }
  std::byte* peer_pointer(int, std::size_t) const { return nullptr; }
  void put(const SerialGroup&, int, std::size_t, const void*, std::size_t) {}
  void put_then_signal(const SerialGroup&, int, const SignalledPut&) {}
  void signal_after_puts(const SerialGroup&, int, std::size_t, Epoch) {}
  void signal_without_order(const SerialGroup&, int, std::size_t, Epoch) {}
  bool wait_at_least(const SerialGroup&, std::size_t word, Epoch target, const WaitSite& site) {
    EXPECT_EQ(site.phase, Phase::summed);
    words.push_back(word);
    targets.push_back(target);
    return true;
  }
};
using WatchedWaits = OneByOne<WatchedCalls>;
static_assert(SerialFabric<WatchedWaits>);

// I8, I13: the first combine waits for nothing, as no earlier one used its slots.
TEST(AwaitSummed, WaitsForEveryRankFromTheSecondCombineOn) {
  Plan plan;
  plan.set_shape(kShape);
  plan.map = make_heap_map(kShape, ExchangeOptions{}, 0, false);
  std::uint8_t masked[] = {0, 0, 0};
  plan.masked = masked;
  WatchedWaits first;
  EXPECT_TRUE(cpu::await_summed(plan, first, SerialGroup{}, kFirstEpoch));
  EXPECT_TRUE(first.words.empty());
  for (const Epoch later : {kFirstEpoch + 1, kFirstEpoch + 2, kFirstEpoch + 100}) {
    WatchedWaits fabric;
    EXPECT_TRUE(cpu::await_summed(plan, fabric, SerialGroup{}, later));
    EXPECT_EQ(fabric.words, (std::vector<std::size_t>{plan.map.summed(0), plan.map.summed(1), plan.map.summed(2)}));
    EXPECT_EQ(fabric.targets, std::vector<Epoch>(3, later));
  }
  masked[1] = 1;
  WatchedWaits fabric;
  EXPECT_TRUE(cpu::await_summed(plan, fabric, SerialGroup{}, kFirstEpoch + 1));
  EXPECT_EQ(fabric.words, (std::vector<std::size_t>{plan.map.summed(0), plan.map.summed(2)}));
}

// What one rank signalled during a call.
class Signals {
 public:
  Signals(FakeWorld& world, const HeapMap& map) : plan_(world.stop_plan()), word_(map.summed(world.rank())) {}
  void start() { begin_ = plan_.signals().size(); }
  // Signals of `summed` since start(), and whether any came before them.
  std::vector<Epoch> summed(bool* are_first = nullptr) const {
    const auto all = plan_.signals();
    std::vector<Epoch> values;
    for (std::size_t i = begin_; i < all.size(); ++i) {
      if (all[i].word == word_) values.push_back(all[i].value);
      if (are_first != nullptr && values.empty()) *are_first = false;
    }
    return values;
  }

 private:
  StopPlan& plan_;
  std::size_t word_;
  std::size_t begin_ = 0;
};

// I6: summed = c + 1 comes after the last read of c: at the end of combine, or before the routing of the dispatch that
// gives c up.
TEST(Summed, IsTheLastWordOfACombine) {
  for (const FakeKind kind : {FakeKind::direct, FakeKind::reordering}) {
    for (const Fate fate : {Fate::combined, Fate::abandoned, Fate::abandoned_returning}) {
      SessionSettings settings;
      settings.shape = kShape;
      settings.options = conformance::options_for("bf16", Reduction::by_rank);
      settings.routings = {"uniform"};
      settings.num_rounds = 4;
      const Session session = make_session(settings, 5);
      run_fake_ranks(kind, kShape.ranks, 5, [&](FakeWorld& world) {
        world.may_stop();  // which also notes its signals
        Exchange exchange(world, session.shape, session.options);
        Signals signals(world, make_heap_map(kShape, session.options, world.rank(), kind != FakeKind::direct));
        Epoch result = kFirstEpoch;
        bool given_up = false;
        for (const SessionRound& round : session.rounds) {
          conformance::RankRound mine(round.scenario, world.rank());
          signals.start();
          exchange.dispatch_async(mine.in);
          bool are_first = true;
          EXPECT_EQ(signals.summed(&are_first), std::vector<Epoch>(given_up ? 3 : 0, result));
          EXPECT_EQ(are_first, given_up);
          signals.start();
          exchange.dispatch_wait(mine.out);
          EXPECT_EQ(signals.summed(), std::vector<Epoch>{});
          given_up = fate == Fate::abandoned_returning;
          if (fate == Fate::abandoned) continue;
          exchange.combine_async(mine.combine_in);
          EXPECT_EQ(signals.summed(), std::vector<Epoch>{});
          ++result;
          if (given_up) continue;
          exchange.combine_wait(mine.combine_out);
          EXPECT_EQ(signals.summed(), std::vector<Epoch>(3, result));
        }
      });
    }
  }
}

// I1: no rank may write what dispatch m - 1 read before all have begun m.
TEST(Dispatches, EndOnlyWhenAllHaveBegun) {
  SessionSettings settings;
  settings.shape = kShape;
  settings.options = conformance::options_for("bf16", Reduction::by_rank);
  settings.routings = {"no_tokens"};
  settings.num_rounds = 4;
  const Session session = make_session(settings, 7);
  AllBegin all(kShape.ranks);
  run_fake_ranks(FakeKind::direct, kShape.ranks, 7, [&](FakeWorld& world) {
    Exchange exchange(world, session.shape, session.options);
    int turn = 0;
    for (const SessionRound& round : session.rounds) {
      conformance::RankRound mine(round.scenario, world.rank());
      all.check(world.rank(), turn++, [&] { exchange.dispatch(mine.in, mine.out); });
    }
  });
}

// I13: numbers grow by one from kFirstEpoch, in every word; `summed` names the next combine.
TEST(Epochs, GrowByOneFromTwo) {
  SessionSettings settings;
  settings.shape = kShape;
  settings.options = conformance::options_for("bf16", Reduction::by_rank);
  settings.abandons = 0;
  const Session session = make_session(settings, 6);
  run_fake_ranks(FakeKind::direct, kShape.ranks, 6, [&](FakeWorld& world) {
    world.may_stop();
    Exchange exchange(world, session.shape, session.options);
    const HeapMap map = make_heap_map(kShape, session.options, world.rank(), false);
    Epoch epoch = 2;
    for (const SessionRound& round : session.rounds) {
      const std::size_t begin = world.stop_plan().signals().size();
      run_session_round(exchange, round);
      const auto all = world.stop_plan().signals();
      EXPECT_GT(all.size(), begin);
      for (std::size_t i = begin; i < all.size(); ++i)
        EXPECT_EQ(all[i].value, all[i].word == map.summed(world.rank()) ? epoch + 1 : epoch);
      ++epoch;
    }
  });
}

}  // namespace
}  // namespace ferry::test
