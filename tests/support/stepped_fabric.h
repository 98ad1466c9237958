// SteppedFabric: the ranks' threads run one at a time, and every fabric call and every turn of a wait hands a baton to
// a rank drawn by seed. So an interleaving is a seed: it can be run again, and hundreds take seconds. Optionally
// (Reach other than all) what is sent goes over a Wire whose deliveries are drawn from the same seed. And optionally
// the wire lags: what one rank sends to another one, drawn by seed too, comes only when every rank waits. So whatever
// the protocol lets overtake it does.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "support/fabric_wire.h"
#include "support/fake_fabric.h"

namespace ferry::test {

// One rank's thread runs: the one that holds the baton. Shared by all exchanges of a set of worlds.
class Baton {
 public:
  Baton(std::uint64_t seed, int ranks);

  // A rank takes part while it has fabrics. `join` is called for all of them by one rank, before any steps.
  void join(int rank);
  void leave(int rank);

  // Waits for the baton; where this rank holds it, hands it on first. `idle`: this rank has nothing to do now.
  void step(int rank, bool idle);

  // For a call that blocks elsewhere: the others go on meanwhile.
  void away(int rank);
  void back(int rank);

  // For the holder only: whether every rank has waited in vain since the last act. A call of a fabric is an act, and so
  // is a delivery, which the holder notes.
  bool all_wait();
  void note_act();

  Random& random() { return random_; }  // for the holder only

 private:
  struct RankState {
    int fabrics = 0;
    bool away = false;
    int idle_turns = 0;  // since the last act
    std::condition_variable turn;
  };
  static constexpr int kNobody = -1;

  RankState& state_of(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  bool takes_part(int rank) { return state_of(rank).fabrics > 0 && !state_of(rank).away; }
  bool waits_alone_for_others(int rank);
  void hand_on(int from);
  void forget_idle_turns();

  std::mutex guard_;
  std::condition_variable someone_is_back_;
  std::vector<std::unique_ptr<RankState>> ranks_;
  Random random_;
  double change_;  // how often a busy rank hands on
  int holder_ = kNobody;
};

// A wait's deadline is a number of turns, so it does not depend on how busy the machine is.
class SteppedPacer {
 public:
  SteppedPacer(Baton& baton, int rank) : baton_(baton), rank_(rank) {}
  Pace pause() {
    baton_.step(rank_, true);
    return ++turns_ < kTurns ? Pace::look_for_abort : Pace::expired;
  }

 private:
  static constexpr int kTurns = 20'000;
  Baton& baton_;
  int rank_;
  int turns_ = 0;
};

struct SteppedNet {
  SteppedNet(std::shared_ptr<Baton> shared, std::uint64_t seed, Reach reached, const cpu::Heaps& heaps,
             bool lags = false);

  std::shared_ptr<Baton> baton;
  Wire wire;
  Reach reach;
  bool lagging;
  cpu::Heaps kept;
};

class SteppedCalls : public FakeFabric {
 public:
  using Net = SteppedNet;

  // The baton knows of this fabric since the net was made.
  SteppedCalls(std::shared_ptr<Net> net, FabricPlace place)
      : FakeFabric(std::move(place), net->reach), net_(std::move(net)) {}
  ~SteppedCalls() { net_->baton->leave(rank()); }
  SteppedCalls(const SteppedCalls&) = delete;
  SteppedCalls& operator=(const SteppedCalls&) = delete;

  void put(const SerialGroup&, int peer, std::size_t offset, const void* source, std::size_t bytes) {
    require_lasting(source, bytes, peer);
    step();
    net_->wire.put({rank(), peer, at(peer, offset)}, static_cast<const std::byte*>(source), bytes, reaches(peer));
    deliver_some();
  }
  void put_then_signal(const SerialGroup&, int peer, const SignalledPut& p) {
    require_lasting(p.source, p.bytes, peer);
    step();
    net_->wire.put_then_signal({rank(), peer, at(peer, p.offset)}, p.source, p.bytes, reaches(peer),
                               word_at(peer, p.word), p.value);
    deliver_some();
  }
  void signal_after_puts(const SerialGroup&, int peer, std::size_t word, Epoch value) {
    step();
    net_->wire.signal_after_puts(rank(), peer, word_at(peer, word), value);
    deliver_some();
  }
  void signal_without_order(const SerialGroup&, int peer, std::size_t word, Epoch value) {
    step();
    net_->wire.signal_without_order(rank(), peer, word_at(peer, word), value);
    deliver_some();
  }
  bool wait_at_least(const SerialGroup&, std::size_t word, Epoch target, const WaitSite& site) {
    step();
    DeliveringPacer pacer{SteppedPacer(*net_->baton, rank()), *this};
    return waits().wait(own_word(word), target, site, pacer);
  }

 private:
  // Only a rank that waits keeps the wire going, so it must deliver as it waits.
  struct DeliveringPacer {
    SteppedPacer pacer;
    SteppedCalls& fabric;
    Pace pause() {
      const Pace pace = pacer.pause();
      fabric.deliver_some();
      return pace;
    }
  };

  void step() { net_->baton->step(rank(), false); }
  // Where every rank has a pointer, stores and signals are there at once, as in HostFabric.
  void deliver_some() {
    Random& random = net_->baton->random();
    if (net_->lagging && net_->baton->all_wait() && net_->wire.deliver_held_back() == Wire::Delivered::one)
      net_->baton->note_act();
    for (int left = net_->reach == Reach::all ? 1 << 20 : random.below(3); left > 0; --left) {
      const Wire::Delivered delivered = net_->wire.deliver(net_->reach == Reach::all || random.chance(0.2));
      if (delivered == Wire::Delivered::nothing_left) return;
      if (delivered == Wire::Delivered::one) net_->baton->note_act();
    }
  }

  std::shared_ptr<Net> net_;
};
using SteppedFabric = OneByOne<SteppedCalls>;
static_assert(SerialFabric<SteppedFabric>);

}  // namespace ferry::test
