// ReorderingFabric: nothing that a rank sends is there when the call returns. A thread of its own delivers, late and in
// an order drawn by seed, all that the contract of ferry/detail/protocol/contracts/fabric.h allows (fabric_wire.h).
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "support/fabric_wire.h"
#include "support/fake_fabric.h"

namespace ferry::test {

// What the ranks of one exchange share: the wire and the thread that delivers. It keeps the heaps until all that was
// sent is there, so a rank may be gone before its puts are.
class ReorderingNet {
 public:
  ReorderingNet(std::uint64_t seed, Reach reached, const cpu::Heaps& heaps)
      : wire(seed), reach(reached), kept_(heaps), random_(seed * 31 + 7), courier_([this] { deliver_all(); }) {}
  ~ReorderingNet() {
    stopping_ = true;
    courier_.join();
  }
  ReorderingNet(const ReorderingNet&) = delete;
  ReorderingNet& operator=(const ReorderingNet&) = delete;

  Wire wire;
  const Reach reach;

 private:
  void deliver_all() {
    for (;;) {
      switch (wire.deliver(random_.chance(0.1))) {
        case Wire::Delivered::one:
          break;
        case Wire::Delivered::none_ready:
          std::this_thread::yield();
          break;
        case Wire::Delivered::nothing_left:
          if (stopping_) return;
          std::this_thread::sleep_for(std::chrono::microseconds(random_.below(60)));
      }
    }
  }

  const cpu::Heaps kept_;
  Random random_;
  std::atomic<bool> stopping_{false};
  std::thread courier_;
};

class ReorderingCalls : public FakeFabric {
 public:
  using Net = ReorderingNet;

  ReorderingCalls(std::shared_ptr<Net> net, FabricPlace place)
      : FakeFabric(std::move(place), net->reach), net_(std::move(net)) {}

  void put(const SerialGroup&, int peer, std::size_t offset, const void* source, std::size_t bytes) {
    require_lasting(source, bytes, peer);
    net_->wire.put({rank(), peer, at(peer, offset)}, static_cast<const std::byte*>(source), bytes, reaches(peer));
  }
  void put_then_signal(const SerialGroup&, int peer, const SignalledPut& p) {
    require_lasting(p.source, p.bytes, peer);
    net_->wire.put_then_signal({rank(), peer, at(peer, p.offset)}, p.source, p.bytes, reaches(peer),
                               word_at(peer, p.word), p.value);
  }
  void signal_after_puts(const SerialGroup&, int peer, std::size_t word, Epoch value) {
    net_->wire.signal_after_puts(rank(), peer, word_at(peer, word), value);
  }
  void signal_without_order(const SerialGroup&, int peer, std::size_t word, Epoch value) {
    net_->wire.signal_without_order(rank(), peer, word_at(peer, word), value);
  }
  bool wait_at_least(const SerialGroup&, std::size_t word, Epoch target, const WaitSite& site) {
    return waits().wait(own_word(word), target, site);
  }

 private:
  std::shared_ptr<Net> net_;
};
using ReorderingFabric = OneByOne<ReorderingCalls>;
static_assert(SerialFabric<ReorderingFabric>);

}  // namespace ferry::test
