// When a rank may say what: the signals that no outcome would miss, looked at one by one. Every rank publishes its
// routing to every other, so a round that has begun shows already what `consumed` says; these tests hold it to its own
// word.
#include <gtest/gtest.h>

#include <algorithm>

#include "cpu/steps/route.h"
#include "exchange/sizes.h"
#include "protocol/session.h"

namespace ferry::test {
namespace {

constexpr Shape kShape{3, 6, 2, 4, 32};

// A fabric that remembers which words were waited for and what was written when.
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
    EXPECT_EQ(site.phase, Phase::consumed);
    words.push_back(word);
    targets.push_back(target);
    return true;
  }
};
using WatchedWaits = OneByOne<WatchedCalls>;
static_assert(SerialFabric<WatchedWaits>);

// I1, I13: the first two rounds wait for nothing, as no earlier one used their buffers.
TEST(AwaitBuffers, WaitsForEveryRankFromTheThirdRoundOn) {
  Plan plan;
  plan.set_shape(kShape);
  plan.map = make_heap_map(kShape, ExchangeOptions{}, 0, false);
  std::uint8_t masked[] = {0, 0, 0};
  plan.masked = masked;
  for (const Epoch first : {kFirstEpoch, kFirstEpoch + 1}) {
    WatchedWaits fabric;
    EXPECT_TRUE(cpu::await_buffers(plan, fabric, SerialGroup{}, first));
    EXPECT_TRUE(fabric.words.empty());
  }
  for (const Epoch later : {kFirstEpoch + 2, kFirstEpoch + 3, kFirstEpoch + 100}) {
    WatchedWaits fabric;
    EXPECT_TRUE(cpu::await_buffers(plan, fabric, SerialGroup{}, later));
    EXPECT_EQ(fabric.words,
              (std::vector<std::size_t>{plan.map.consumed(0), plan.map.consumed(1), plan.map.consumed(2)}));
    EXPECT_EQ(fabric.targets, std::vector<Epoch>(3, later - 2));
  }
  masked[1] = 1;
  WatchedWaits fabric;
  EXPECT_TRUE(cpu::await_buffers(plan, fabric, SerialGroup{}, kFirstEpoch + 2));
  EXPECT_EQ(fabric.words, (std::vector<std::size_t>{plan.map.consumed(0), plan.map.consumed(2)}));
}

// What one rank signalled during a call.
class Signals {
 public:
  Signals(FakeWorld& world, const HeapMap& map) : plan_(world.stop_plan()), word_(map.consumed(world.rank())) {}
  void start() { begin_ = plan_.signals().size(); }
  // Signals of `consumed` since start(), and whether nothing else came after the first.
  std::vector<Epoch> consumed(bool* are_last = nullptr) const {
    const auto all = plan_.signals();
    std::vector<Epoch> values;
    for (std::size_t i = begin_; i < all.size(); ++i) {
      if (all[i].word == word_)
        values.push_back(all[i].value);
      else if (are_last != nullptr && !values.empty())
        *are_last = false;
    }
    return values;
  }

 private:
  StopPlan& plan_;
  std::size_t word_;
  std::size_t begin_ = 0;
};

// I6: consumed = e comes after the last read of e: at the end of combine, or of the dispatch that gives the round up.
TEST(Consumed, IsTheLastWordOfARound) {
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
        Epoch epoch = kFirstEpoch;
        bool given_up = false;
        for (const SessionRound& round : session.rounds) {
          conformance::RankRound mine(round.scenario, world.rank());
          signals.start();
          exchange.dispatch_async(mine.in);
          EXPECT_EQ(signals.consumed(), std::vector<Epoch>{});
          exchange.dispatch_wait(mine.out);
          bool are_last = true;
          EXPECT_EQ(signals.consumed(&are_last), std::vector<Epoch>(given_up ? 3 : 0, epoch - 1));
          EXPECT_TRUE(are_last);
          signals.start();
          given_up = fate != Fate::combined;
          if (fate != Fate::abandoned) exchange.combine_async(mine.combine_in);
          EXPECT_EQ(signals.consumed(), std::vector<Epoch>{});
          if (fate == Fate::combined) {
            exchange.combine_wait(mine.combine_out);
            EXPECT_EQ(signals.consumed(), std::vector<Epoch>(3, epoch));
          }
          ++epoch;
        }
      });
    }
  }
}

// I13: epochs grow by one from kFirstEpoch, in every word.
TEST(Epochs, GrowByOneFromTwo) {
  SessionSettings settings;
  settings.shape = kShape;
  settings.options = conformance::options_for("bf16", Reduction::by_rank);
  settings.abandons = 0;
  const Session session = make_session(settings, 6);
  run_fake_ranks(FakeKind::direct, kShape.ranks, 6, [&](FakeWorld& world) {
    world.may_stop();
    Exchange exchange(world, session.shape, session.options);
    Epoch epoch = 2;
    for (const SessionRound& round : session.rounds) {
      const std::size_t begin = world.stop_plan().signals().size();
      run_session_round(exchange, round);
      const auto all = world.stop_plan().signals();
      EXPECT_GT(all.size(), begin);
      for (std::size_t i = begin; i < all.size(); ++i) EXPECT_EQ(all[i].value, epoch);
      ++epoch;
    }
  });
}

}  // namespace
}  // namespace ferry::test
