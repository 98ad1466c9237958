// FailingFabric: a rank that stops at a chosen fabric call, over any other fabric. From then on nothing that it does
// reaches anyone: the call throws RankStopped, and the test's thread returns as a killed process would. A
// put_then_signal is two calls, so a rank can stop between a put and its signal. Deadlines pass when all ranks that are
// left wait in vain, however fast they are (standstill.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "support/fake_fabric.h"
#include "support/standstill.h"

namespace ferry::test {

class RankStopped : public std::runtime_error {
 public:
  RankStopped() : std::runtime_error("this rank has stopped, as the test asked") {}
};

// When a rank stops, and what it has signalled; shared by all its exchanges.
class StopPlan {
 public:
  // The rank stops at its call number `calls` from now, 0 being the next.
  void stop_after(std::int64_t calls) { left_ = calls; }
  std::int64_t calls() const { return calls_; }
  bool has_stopped() const { return stopped_; }

  // A signal that the rank has sent, in the order of the calls of its one worker.
  struct Signal {
    int peer;
    std::size_t word;
    Epoch value;
  };
  void note(const Signal& signal) {
    const std::lock_guard lock(guard_);
    signals_.push_back(signal);
  }
  std::vector<Signal> signals() const {
    const std::lock_guard lock(guard_);
    return signals_;
  }

  // Counts a call. True: the rank stops here.
  bool count() {
    ++calls_;
    if (left_ < 0) return stopped_;
    if (left_-- == 0) stopped_ = true;
    return stopped_;
  }

 private:
  std::atomic<std::int64_t> left_{-1};
  std::atomic<std::int64_t> calls_{0};
  std::atomic<bool> stopped_{false};
  mutable std::mutex guard_;
  std::vector<Signal> signals_;
};

template <class Inner>
class FailingCalls : public SerialFabricDefaults {
 public:
  struct Net {
    Net(std::shared_ptr<typename Inner::Net> of_inner, int ranks)
        : inner(std::move(of_inner)), standstill(ranks, carried(inner)) {}

    std::shared_ptr<typename Inner::Net> inner;
    Standstill standstill;

   private:
    static std::function<std::int64_t()> carried(const std::shared_ptr<typename Inner::Net>& net) {
      if constexpr (Inner::kHasWire)
        return [net] { return net->wire.all_delivered(); };
      else
        return {};
    }
  };

  FailingCalls(std::shared_ptr<Net> net, const FabricPlace& place, std::shared_ptr<StopPlan> plan)
      : net_(std::move(net)), inner_(net_->inner, place), plan_(std::move(plan)) {
    for (int peer = 0; peer < size(); ++peer)
      if (place.masked[peer] != 0) net_->standstill.leave(peer);
  }
  ~FailingCalls() { net_->standstill.leave(rank()); }
  FailingCalls(const FailingCalls&) = delete;
  FailingCalls& operator=(const FailingCalls&) = delete;

  int rank() const { return inner_.rank(); }
  int size() const { return inner_.size(); }
  std::byte* local(std::size_t offset) const { return inner_.local(offset); }
  std::byte* peer_pointer(int peer, std::size_t offset) const { return inner_.peer_pointer(peer, offset); }
  cpu::HostWaits& waits() { return inner_.waits(); }
  const cpu::HostWaits& waits() const { return inner_.waits(); }

  void put(const SerialGroup& g, int peer, std::size_t offset, const void* source, std::size_t bytes) {
    stop_or_go_on();
    inner_.put(g, peer, offset, source, bytes);
    net_->standstill.note_act();
  }
  void put_then_signal(const SerialGroup& g, int peer, const SignalledPut& p) {
    stop_or_go_on();
    if (plan_->count()) {
      inner_.put(g, peer, p.offset, p.source, p.bytes);
      throw RankStopped();
    }
    plan_->note({peer, p.word, p.value});
    inner_.put_then_signal(g, peer, p);
    net_->standstill.note_act();
  }
  void signal_after_puts(const SerialGroup& g, int peer, std::size_t word, Epoch value) {
    stop_or_go_on();
    plan_->note({peer, word, value});
    inner_.signal_after_puts(g, peer, word, value);
    net_->standstill.note_act();
  }
  // Does not throw: an exchange that gives up tells the others, and they must not hear it from a rank that is gone.
  void signal_without_order(const SerialGroup& g, int peer, std::size_t word, Epoch value) {
    if (plan_->count()) return;
    inner_.signal_without_order(g, peer, word, value);
    net_->standstill.note_act();
  }
  bool wait_at_least(const SerialGroup&, std::size_t word, Epoch target, const WaitSite& site) {
    stop_or_go_on();
    StandstillPacer pacer(net_->standstill, rank());
    return waits().wait(*reinterpret_cast<const SignalWord*>(local(word)), target, site, pacer);
  }
  Absence absence_of(int missing) const { return waits().absence_of(missing); }
  int find_culprit() const {
    StandstillPacer moment(net_->standstill, rank());
    return waits().find_culprit(moment);
  }

 private:
  void stop_or_go_on() {
    if (plan_->count()) throw RankStopped();
  }

  std::shared_ptr<Net> net_;
  Inner inner_;
  std::shared_ptr<StopPlan> plan_;
};

template <class Inner>
using FailingFabric = OneByOne<FailingCalls<Inner>>;

}  // namespace ferry::test
