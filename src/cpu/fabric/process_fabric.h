// ProcessFabric: ranks that are processes of one host. Every rank maps the heaps of all others, so puts and signals
// work as between threads. A wait for a rank also ends when the process of that rank ends.
#pragma once

#include <chrono>
#include <utility>

#include "cpu/fabric/cpu_fabric.h"
#include "cpu/fabric/host_fabric.h"
#include "net/bootstrap.h"

namespace ferry::cpu {

// As HostPacer. A wait that lasts looks now and then whether the process of that rank is still there: its connection
// ends with it. What it had stored is there before that, and wait_until looks at the word once more.
class ProcessPacer {
 public:
  ProcessPacer(Clock::duration deadline, net::Bootstrap& bootstrap, int peer)
      : pacer_(deadline), bootstrap_(bootstrap), peer_(peer) {}

  Pace pause() {
    const Pace pace = pacer_.pause();
    if (pace != Pace::look_for_abort) return pace;
    const Clock::time_point now = Clock::now();
    const bool is_first = next_look_ == Clock::time_point{};  // most waits end before it
    if (!is_first && now < next_look_) return pace;
    next_look_ = now + kLookEvery;
    return !is_first && bootstrap_.has_ended(peer_) ? Pace::expired : pace;
  }

 private:
  static constexpr std::chrono::milliseconds kLookEvery{20};
  HostPacer pacer_;
  net::Bootstrap& bootstrap_;
  int peer_;
  Clock::time_point next_look_{};
};

class ProcessCalls : public SerialFabricDefaults {
 public:
  static constexpr bool kGivesBack = true;

  // `bootstrap` is the world's, which outlives its exchanges.
  ProcessCalls(net::Bootstrap& bootstrap, Heaps heaps, std::size_t abort_words, const std::uint8_t* masked)
      : stores_(bootstrap.rank(), std::move(heaps), abort_words, masked), bootstrap_(bootstrap), masked_(masked) {}

  int rank() const { return stores_.rank(); }
  int size() const { return stores_.size(); }
  std::byte* local(std::size_t offset) const { return stores_.local(offset); }
  std::byte* peer_pointer(int peer, std::size_t offset) const { return stores_.peer_pointer(peer, offset); }
  HostWaits& waits() { return stores_.waits(); }
  const HostWaits& waits() const { return stores_.waits(); }

  void put(const HostGroup& g, int peer, std::size_t offset, const void* source, std::size_t bytes) {
    stores_.put(g, peer, offset, source, bytes);
  }
  void put_then_signal(const HostGroup& g, int peer, const SignalledPut& p) { stores_.put_then_signal(g, peer, p); }
  void signal_after_puts(const HostGroup& g, int peer, std::size_t word, Epoch value) {
    stores_.signal_after_puts(g, peer, word, value);
  }
  // C4. Only abort words come this way. Who waits for this rank elsewhere, in set-up, is told whom it missed (I10).
  void signal_without_order(const HostGroup& g, int peer, std::size_t word, Epoch value) {
    if ((value & (kLeft | kAborts | kOtherRouting)) == 0) bootstrap_.tell_missed(peer, rank_waited_for(value));
    stores_.signal_without_order(g, peer, word, value);
  }
  bool wait_at_least(const HostGroup&, std::size_t word, Epoch target, const WaitSite& site) {
    ProcessPacer pacer(waits().deadline(), bootstrap_, site.peer);
    return waits().wait(*reinterpret_cast<const SignalWord*>(local(word)), target, site, pacer);
  }
  std::size_t give_back(std::size_t begin, std::size_t bytes) { return stores_.give_back(begin, bytes); }
  // I10: who said nothing here may have given up in set-up.
  int find_culprit() const {
    const RankMask mask(masked_, masked_ + size());
    return bootstrap_.find_culprit(stores_.find_culprit(), mask);
  }
  Absence absence_of(int missing) const {
    const Absence said = stores_.absence_of(missing);
    return said == Absence::late && missing != rank() && bootstrap_.has_ended(missing) ? Absence::ended : said;
  }

 private:
  HostCalls stores_;
  net::Bootstrap& bootstrap_;
  const std::uint8_t* masked_;
};
using ProcessFabric = OneByOne<ProcessCalls>;
static_assert(CpuFabric<ProcessFabric>);

}  // namespace ferry::cpu
