// The contract of ferry/detail/protocol/contracts/fabric.h, C1 to C7, on every fabric that runs on a CPU: one suite,
// one line for each new fabric. What a clause forbids is looked for many times, since a wire may also happen to keep an
// order.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>

#include "support/direct_fabric.h"
#include "support/failing_fabric.h"
#include "support/reordering_fabric.h"
#include "support/stepped_fabric.h"

namespace ferry::test {
namespace {

using std::chrono::milliseconds;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kSeeds = 1;
#else
constexpr std::uint64_t kSeeds = 5;
#endif
constexpr int kRanks = 3;
constexpr std::size_t kSlots = 16;
constexpr std::size_t kSlotBytes = 192;
constexpr std::size_t kSource = 8192;       // where the sender keeps what it puts
constexpr std::size_t kWords = 32768;       // [64] signal words
constexpr std::size_t kAbortWords = 40960;  // [ranks]
constexpr std::size_t kHeapBytes = 49152;
constexpr WaitSite kSite{Operation::dispatch, Phase::message, 0, 7};

constexpr std::size_t slot(std::size_t index) { return index * kSlotBytes; }
constexpr std::size_t word(std::size_t index) { return kWords + index * sizeof(SignalWord); }

// How a fabric is made. `Fabric` is what the suite calls; a net is shared by the ranks.
struct Direct {
  using Type = DirectFabric;
  static std::shared_ptr<Type::Net> net(std::uint64_t, const cpu::Heaps&) { return std::make_shared<Type::Net>(); }
};
template <Reach kReach>
struct Reordering {
  using Type = ReorderingFabric;
  static std::shared_ptr<Type::Net> net(std::uint64_t seed, const cpu::Heaps& heaps) {
    return std::make_shared<Type::Net>(seed, kReach, heaps);
  }
};
template <Reach kReach, bool kLags = false>
struct Stepped {
  using Type = SteppedFabric;
  static std::shared_ptr<Type::Net> net(std::uint64_t seed, const cpu::Heaps& heaps) {
    return std::make_shared<Type::Net>(std::make_shared<Baton>(seed, kRanks), seed, kReach, heaps, kLags);
  }
};
template <class Inner>
struct Failing {
  using Type = FailingFabric<typename Inner::Type>;
  static std::shared_ptr<typename Type::Net> net(std::uint64_t seed, const cpu::Heaps& heaps) {
    return std::make_shared<typename Type::Net>(Inner::net(seed, heaps), kRanks);
  }
};
static_assert(SerialFabric<FailingFabric<DirectFabric>>);
static_assert(SerialFabric<FailingFabric<ReorderingFabric>>);

template <class Maker>
class FabricContract : public testing::Test {
 protected:
  using F = typename Maker::Type;
  using Body = std::function<void(F&)>;

  // Runs a body per rank, each on a thread of its own with its own fabric.
  void on_ranks(std::uint64_t seed, const std::vector<Body>& bodies) {
    cpu::Heaps heaps;
    for (int rank = 0; rank < kRanks; ++rank) heaps.push_back(std::make_shared<cpu::Heap>(kHeapBytes));
    const auto net = Maker::net(seed, heaps);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        FabricPlace place{rank, heaps, kAbortWords, masked_};
        auto fabric = make(net, place);
        fabric->waits().set_deadline(deadline_);
        if (static_cast<std::size_t>(rank) < bodies.size()) bodies[static_cast<std::size_t>(rank)](*fabric);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  static void fill(F& fabric, std::size_t index, std::uint64_t value) {
    std::memset(fabric.local(kSource + slot(index)), static_cast<int>(value % 251), kSlotBytes);
  }
  static const std::byte* source(F& fabric, std::size_t index) { return fabric.local(kSource + slot(index)); }
  static bool slot_holds(F& fabric, std::size_t index, std::uint64_t value) {
    for (std::size_t i = 0; i < kSlotBytes; ++i)
      if (fabric.local(slot(index))[i] != static_cast<std::byte>(value % 251)) return false;
    return true;
  }

  SerialGroup group_;
  milliseconds deadline_{20'000};

 private:
  static std::unique_ptr<F> make(const std::shared_ptr<typename F::Net>& net, const FabricPlace& place) {
    if constexpr (std::is_constructible_v<F, std::shared_ptr<typename F::Net>, FabricPlace>)
      return std::make_unique<F>(net, place);
    else
      return std::make_unique<F>(net, place, std::make_shared<StopPlan>());
  }

  std::uint8_t masked_[kRanks] = {};
};

using Makers = testing::Types<Direct, Reordering<Reach::itself>, Reordering<Reach::even_distance>, Stepped<Reach::all>,
                              Stepped<Reach::itself>, Stepped<Reach::itself, true>, Failing<Direct>,
                              Failing<Reordering<Reach::itself>>>;
TYPED_TEST_SUITE(FabricContract, Makers);

// C2, C6; C1 allows the source to change once the receiver has shown that it has the bytes.
TYPED_TEST(FabricContract, SignalAfterPutsFollowsEveryPut) {
  constexpr std::uint64_t kRounds = 20;
  const auto sender = [&](auto& fabric) {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      for (std::size_t i = 0; i < kSlots; ++i) {
        this->fill(fabric, i, round + i);
        fabric.put(this->group_, 1, slot(i), this->source(fabric, i), kSlotBytes);
      }
      fabric.signal_after_puts(this->group_, 1, word(0), round);
      ASSERT_TRUE(fabric.wait_at_least(this->group_, word(1), round, kSite));
    }
  };
  const auto receiver = [&](auto& fabric) {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      ASSERT_TRUE(fabric.wait_at_least(this->group_, word(0), round, kSite));
      for (std::size_t i = 0; i < kSlots; ++i) ASSERT_TRUE(this->slot_holds(fabric, i, round + i)) << "round " << round;
      fabric.signal_after_puts(this->group_, 0, word(1), round);
    }
  };
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) this->on_ranks(seed, {sender, receiver});
}

// C3: the bytes of each put are there with its own signal, whichever comes first.
TYPED_TEST(FabricContract, PutThenSignalCarriesItsOwnBytes) {
  constexpr std::uint64_t kRounds = 20;
  const auto sender = [&](auto& fabric) {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      for (std::size_t i = 0; i < kSlots; ++i) {
        this->fill(fabric, i, round * 3 + i);
        fabric.put_then_signal(this->group_, 2, {slot(i), this->source(fabric, i), kSlotBytes, word(i), round});
      }
      ASSERT_TRUE(fabric.wait_at_least(this->group_, word(kSlots), round, kSite));
    }
  };
  const auto idle = [](auto&) {};
  const auto receiver = [&](auto& fabric) {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      for (std::size_t i = kSlots; i-- > 0;) {
        ASSERT_TRUE(fabric.wait_at_least(this->group_, word(i), round, kSite));
        ASSERT_TRUE(this->slot_holds(fabric, i, round * 3 + i)) << "round " << round;
      }
      fabric.signal_after_puts(this->group_, 0, word(kSlots), round);
    }
  };
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) this->on_ranks(seed, {sender, idle, receiver});
}

// The calls for many ranks are those for one (C2, C3, C6). A skipped rank gets nothing and is not waited for.
TYPED_TEST(FabricContract, CallsForManyRanksAreThoseForOne) {
  constexpr std::uint64_t kRounds = 20;
  constexpr std::uint8_t kSkipped[kRanks] = {1, 0, 0};
  const auto receiver = [&](auto& fabric) {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      ASSERT_TRUE(fabric.wait_at_least(this->group_, word(0), round, kSite));
      ASSERT_TRUE(this->slot_holds(fabric, 0, round)) << "round " << round;
      ASSERT_TRUE(fabric.wait_at_least(this->group_, word(1), round, kSite));
      ASSERT_TRUE(this->slot_holds(fabric, 1, round + 1)) << "round " << round;
      fabric.signal_after_puts(this->group_, 0, word(2 + static_cast<std::size_t>(fabric.rank())), round);
    }
  };
  const auto sender = [&](auto& fabric) {
    constexpr int kOthers[] = {1, 2};
    const auto answer = [](int peer) { return word(2 + static_cast<std::size_t>(peer)); };
    const auto site = [](int) { return kSite; };
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      this->fill(fabric, 0, round);
      this->fill(fabric, 1, round + 1);
      fabric.put_then_signal_each(this->group_, {kOthers, 2, static_cast<int>(round)},
                                  {slot(0), this->source(fabric, 0), kSlotBytes, word(0), round});
      for (const int peer : kOthers) fabric.put(this->group_, peer, slot(1), this->source(fabric, 1), kSlotBytes);
      fabric.signal_each_after_puts(this->group_, kRanks, word(1), round, kSkipped);
      fabric.finish_puts(this->group_);
      ASSERT_TRUE(fabric.wait_for_each(this->group_, kRanks, answer, round, site, kSkipped));
    }
    EXPECT_EQ(load_relaxed(*reinterpret_cast<const SignalWord*>(fabric.local(word(1)))), 0u);
  };
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) this->on_ranks(seed, {sender, receiver, receiver});
}

// C4: promises nothing but that it comes.
TYPED_TEST(FabricContract, SignalWithoutOrderComes) {
  const auto sender = [&](auto& fabric) {
    for (int peer = 0; peer < kRanks; ++peer) fabric.signal_without_order(this->group_, peer, word(3), 17);
    EXPECT_TRUE(fabric.wait_at_least(this->group_, word(3), 17, kSite));
  };
  const auto receiver = [&](auto& fabric) { EXPECT_TRUE(fabric.wait_at_least(this->group_, word(3), 17, kSite)); };
  this->on_ranks(5, {sender, receiver, receiver});
}

// C5, C2: a store through a pointer is there before the signal that follows it; a put through one may be forgotten.
TYPED_TEST(FabricContract, StoresThroughAPointerComeBeforeTheSignal) {
  constexpr std::uint64_t kRounds = 20;
  const auto sender = [&](auto& fabric) {
    ASSERT_EQ(fabric.peer_pointer(0, slot(3)), fabric.local(slot(3)));
    if (fabric.peer_pointer(2, 0) == nullptr) return;
    std::vector<std::byte> passing(kSlotBytes);
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      std::memset(fabric.peer_pointer(2, slot(0)), static_cast<int>(round), kSlotBytes);
      std::fill(passing.begin(), passing.end(), static_cast<std::byte>(round + 100));
      fabric.put(this->group_, 2, slot(1), passing.data(), kSlotBytes);
      std::fill(passing.begin(), passing.end(), std::byte{0});
      fabric.signal_after_puts(this->group_, 2, word(0), round);
      ASSERT_TRUE(fabric.wait_at_least(this->group_, word(1), round, kSite));
    }
  };
  const auto idle = [](auto&) {};
  const auto receiver = [&](auto& fabric) {
    if (fabric.peer_pointer(0, 0) == nullptr) return;
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      ASSERT_TRUE(fabric.wait_at_least(this->group_, word(0), round, kSite));
      ASSERT_TRUE(this->slot_holds(fabric, 0, round));
      ASSERT_TRUE(this->slot_holds(fabric, 1, round + 100));
      fabric.signal_after_puts(this->group_, 0, word(1), round);
    }
  };
  this->on_ranks(6, {sender, idle, receiver});
}

// C6: a wait that fails says so, keeps the first record, and every later wait fails too.
TYPED_TEST(FabricContract, WaitEndsAtItsDeadline) {
  this->deadline_ = milliseconds(40);
  const auto waiter = [&](auto& fabric) {
    EXPECT_FALSE(fabric.wait_at_least(this->group_, word(9), 5, {Operation::combine, Phase::result, 2, 4}));
    const WaitRecord record = fabric.waits().failure();
    EXPECT_EQ(record.operation, Operation::combine);
    EXPECT_EQ(record.phase, Phase::result);
    EXPECT_EQ(record.my_rank, 0);
    EXPECT_EQ(record.missing_rank, 2);
    EXPECT_EQ(record.reported_by, 0);
    EXPECT_EQ(record.token, 4);
    EXPECT_EQ(record.epoch_seen, 0u);
    EXPECT_EQ(record.epoch_wanted, 5u);
    fabric.signal_without_order(this->group_, 0, word(8), 1);
    EXPECT_FALSE(fabric.wait_at_least(this->group_, word(8), 1, kSite));
  };
  this->on_ranks(7, {waiter});
}

// C6: an abort word ends a wait at once, and names the culprit.
TYPED_TEST(FabricContract, WaitEndsWhenAPeerAborts) {
  const auto waiter = [&](auto& fabric) {
    EXPECT_FALSE(fabric.wait_at_least(this->group_, word(9), 5, kSite));
    EXPECT_EQ(fabric.waits().failure().missing_rank, 2);
    EXPECT_EQ(fabric.waits().failure().reported_by, 1);
  };
  const auto aborting = [&](auto& fabric) {
    constexpr Epoch kGaveUpOnRank2 = Epoch{5} << 16 | 3;
    fabric.signal_without_order(this->group_, 0, kAbortWords + sizeof(SignalWord), kGaveUpOnRank2);
  };
  this->on_ranks(8, {waiter, aborting});
}

// C7: a word never goes back, and what was bound to the last signal is what stays.
TYPED_TEST(FabricContract, SignalsToOneWordKeepTheirOrder) {
  constexpr std::uint64_t kSignals = 60;
  const auto sender = [&](auto& fabric) {
    for (std::uint64_t value = 1; value <= kSignals; ++value) {
      const std::size_t index = value % kSlots;  // a source of its own while it may still be read
      if (index == 0) {
        ASSERT_TRUE(fabric.wait_at_least(this->group_, word(1), value - 1, kSite));
      }
      this->fill(fabric, index, value);
      fabric.put_then_signal(this->group_, 1, {slot(0), this->source(fabric, index), kSlotBytes, word(0), value});
      if (value % 3 == 0) fabric.signal_after_puts(this->group_, 1, word(2), value);
      if (value % 3 == 1) fabric.signal_without_order(this->group_, 1, word(2), value);
    }
  };
  const auto receiver = [&](auto& fabric) {
    Epoch newest = 0;
    Epoch newest_loose = 0;
    const auto look = [&] {
      const Epoch now = load_acquire(*reinterpret_cast<const SignalWord*>(fabric.local(word(0))));
      const Epoch loose = load_acquire(*reinterpret_cast<const SignalWord*>(fabric.local(word(2))));
      EXPECT_GE(now, newest);
      EXPECT_GE(loose, newest_loose);
      newest = now;
      newest_loose = loose;
    };
    for (std::uint64_t value = 1; value <= kSignals; ++value) {
      ASSERT_TRUE(fabric.wait_at_least(this->group_, word(0), value, kSite));
      look();
      if (value % kSlots == kSlots - 1) {
        ASSERT_TRUE(this->slot_holds(fabric, 0, value));
        fabric.signal_after_puts(this->group_, 0, word(1), value);
      }
    }
    ASSERT_TRUE(fabric.wait_at_least(this->group_, word(2), kSignals, kSite));
    look();
    EXPECT_EQ(newest, kSignals);
    EXPECT_EQ(newest_loose, kSignals);
  };
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) this->on_ranks(seed, {sender, receiver});
}

}  // namespace
}  // namespace ferry::test
