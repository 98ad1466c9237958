// HostWaits: how a CPU rank waits, and what it remembers when a wait fails. Every CPU fabric has one; several workers
// of a rank may wait at once.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "exchange/calls/call_trace.h"
#include "ferry/detail/base/order.h"
#include "ferry/detail/base/wait.h"
#include "ferry/detail/layout/abort_word.h"
#include "ferry/detail/protocol/contracts/fabric.h"

namespace ferry::cpu {

using Clock = TraceClock;

// Spins for a moment, then yields: ranks may be more than cores. Looks at the clock only where it yields.
class HostPacer {
 public:
  explicit HostPacer(Clock::duration deadline) : deadline_(deadline) {}

  Pace pause() {
    if (++turns_ < kSpins) return Pace::again;
    std::this_thread::yield();
    const Clock::time_point now = Clock::now();
    if (turns_ == kSpins) started_ = now;
    return now - started_ >= deadline_ ? Pace::expired : Pace::look_for_abort;
  }

 private:
  static constexpr std::int64_t kSpins = 64;
  Clock::duration deadline_;
  Clock::time_point started_{};
  std::int64_t turns_ = 0;
};

class HostWaits {
 public:
  // `abort_words` is this rank's region, one word per rank; `masked` tells whose words count for nothing.
  HostWaits(int rank, int ranks, const SignalWord* abort_words, const std::uint8_t* masked);

  void set_deadline(std::chrono::milliseconds deadline) { deadline_ = std::min(deadline, kMaxDeadline); }
  std::chrono::milliseconds deadline() const { return deadline_; }

  // Which call records the waits; null: none. Between what the workers do.
  void trace_to(CallTrace* call) { trace_ = call; }
  CallTrace* trace() const { return trace_; }

  template <class Pacer>
  bool wait(const SignalWord& word, Epoch target, const WaitSite& site, Pacer& pacer) {
    if (load_acquire(word) >= target) return load_relaxed(failed_) == 0;
    const Clock::time_point start = Clock::now();
    const Waited waited = wait_at_least(
        word, target, [&] { return has_abort(site, target); }, pacer);
    note_waited(site, waited == Waited::arrived, {start, Clock::now()});
    if (waited == Waited::arrived) return load_relaxed(failed_) == 0;
    note_failure(waited, site, load_relaxed(word), target);
    return false;
  }
  bool wait(const SignalWord& word, Epoch target, const WaitSite& site) {
    HostPacer pacer(deadline_);
    return wait(word, target, site, pacer);
  }

  // The call words of the other ranks (call_word.h), and what theirs is if they make the same call as this rank. From
  // now on a rank that makes the same call with another routing ends every wait.
  void compare_calls(const SignalWord* call_words, Epoch mine) {
    call_words_ = call_words;
    my_call_ = mine;
  }
  // False: such a rank is there by now, and the failure is noted.
  bool have_same_routing(Operation operation);

  // This rank itself cannot go on: every later wait fails, and the others are told so.
  void give_up(Operation operation, Epoch epoch);
  // This rank's caller aborts, unless a wait has failed before: every later wait fails. Returns `word`, which it
  // tells the others.
  Epoch end_waits(Epoch word);

  // The first failure; only after a wait returned false.
  WaitRecord failure() const;
  // What this rank writes into its abort word at every peer, before it asks for the culprit: whom it waited for, and
  // whether its own deadline passed or another rank's word ended the wait.
  Epoch abort_value() const;
  // What the missing rank said of itself.
  Absence absence_of(int missing) const;
  // The rank that the failure goes back to (follow_abort_words, I10). Gives the others a moment to say theirs: that of
  // their deadline, or of the caller's pacer.
  int find_culprit() const;
  template <class Pacer>
  int find_culprit(Pacer& moment) const {
    return follow_abort_words(failure().missing_rank, rank_, waited_for_, ranks_, [&](int suspect) {
      const auto never = [] { return false; };
      return wait_at_least(abort_words_[suspect], 1, never, moment) == Waited::arrived ? abort_of(suspect) : Epoch{0};
    });
  }
  std::uint64_t waited_ns(int peer) const { return load_relaxed(waited_ns_[static_cast<std::size_t>(peer)]); }

 private:
  bool has_abort(const WaitSite& site, Epoch wanted) const;
  bool will_never_come(const WaitSite& site, Epoch wanted) const;
  int rank_of_other_routing() const;
  // The abort word of a rank: 0 if it is masked, and naming itself if it names a masked rank.
  Epoch abort_of(int peer) const;
  void note_other_routing(Operation operation, int peer);
  void note_waited(const WaitSite& site, bool arrived, const TraceSpan& span);
  void note_failure(Waited waited, const WaitSite& site, Epoch seen, Epoch wanted);

  int rank_;
  int ranks_;
  const SignalWord* abort_words_;
  const std::uint8_t* masked_;
  const SignalWord* call_words_ = nullptr;
  Epoch my_call_ = 0;
  std::chrono::milliseconds deadline_{30'000};
  CallTrace* trace_ = nullptr;
  DeviceWord<std::uint32_t> failed_;
  mutable std::mutex guard_;
  WaitRecord failure_;
  int waited_for_ = -1;
  Epoch abort_ = 0;  // the word of end_waits()
  std::vector<DeviceWord<std::uint64_t>> waited_ns_;
};

}  // namespace ferry::cpu
