// DeviceWaits: how a thread of a block waits on a word, and whom it tells when the wait fails. The words are the same
// whichever way they are set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device_state.h"
#include "cuda/ptx.cuh"
#include "protocol/fabric.h"
#include "shared/abort_word.h"
#include "shared/wait.h"

namespace ferry::cuda {

// Looks at the clock and for an abort only now and then: a waiter's loads are what arrivals compete with.
class DevicePacer {
 public:
  __device__ explicit DevicePacer(std::uint64_t deadline_ns) : deadline_ns_(deadline_ns) {}
  __device__ Pace pause() {
    if (++turns_ % kLookEvery != 0) return Pace::again;
    const std::uint64_t now = ptx::global_nanoseconds();
    if (turns_ == kLookEvery) started_ = now;
    return now - started_ >= deadline_ns_ ? Pace::expired : Pace::look_for_abort;
  }
  __device__ std::uint64_t waited_ns() const { return turns_ < kLookEvery ? 0 : ptx::global_nanoseconds() - started_; }

 private:
  static constexpr std::uint32_t kLookEvery = 64;
  std::uint64_t deadline_ns_;
  std::uint64_t started_ = 0;
  std::uint32_t turns_ = 0;
};

class DeviceWaits {
 public:
  __device__ explicit DeviceWaits(const PeerLinks& links) : links_(links) {}

  // signal(peer, word, value) sets a word at a rank. False: nobody needs to wait any more.
  template <Scope S, class Signal>
  __device__ bool wait(const Shared<Epoch, S>& watched, Epoch target, const WaitSite& site,
                       const Signal& signal) const {
    if (load_acquire(watched) >= target) return true;
    DevicePacer pacer(links_.deadline_ns);
    const Waited waited = wait_at_least(
        watched, target, [this] { return has_abort(); }, pacer);
    const std::uint64_t passed = pacer.waited_ns();
    if (passed != 0) fetch_add_relaxed(links_.waited_ns[site.peer], passed);
    if (waited == Waited::arrived) return true;
    fail(waited, site, load_relaxed(watched), target, signal);
    return false;
  }

 private:
  __device__ const SignalWord& abort_of(int peer) const {
    return reinterpret_cast<const SignalWord*>(links_.heap[links_.rank] + links_.abort_words)[peer];
  }
  __device__ bool has_abort() const {
    if (load_relaxed(links_.state->failed) != 0) return true;
    return !first_abort(links_.size, [this](int peer) {
              return links_.masked[peer] != 0 ? Epoch{0} : load_relaxed(abort_of(peer));
            }).nobody();
  }
  template <class Signal>
  __device__ void fail(Waited waited, const WaitSite& site, Epoch seen, Epoch wanted, const Signal& signal) const;

  const PeerLinks& links_;
};

// I10: the first to fail tells every rank, and its own memory, whom it waited for; the host follows these words to the
// culprit once the record says that there is one.
template <class Signal>
__device__ void DeviceWaits::fail(Waited waited, const WaitSite& site, Epoch seen, Epoch wanted,
                                  const Signal& signal) const {
  if (fetch_add_ordered(links_.state->failed, 1u) != 0) return;
  WaitRecord record;
  record.operation = site.operation;
  record.phase = site.phase;
  record.my_rank = links_.rank;
  record.missing_rank = site.peer;
  record.reported_by = links_.rank;
  record.token = site.token;
  record.epoch_seen = seen;
  record.epoch_wanted = wanted;
  const FirstAbort first = first_abort(waited == Waited::aborted ? links_.size : 0, [this](int peer) {
    return links_.masked[peer] != 0 ? Epoch{0} : load_acquire(abort_of(peer));
  });
  if (!first.nobody()) {
    record.missing_rank = first.waited_for;
    record.reported_by = first.reported_by;
  }
  links_.record->wait = record;
  const Epoch value = abort_word(wanted, waited == Waited::aborted, site.peer);
  for (int peer = 0; peer < links_.size; ++peer)
    if (links_.masked[peer] == 0) signal(peer, links_.my_abort_word, value);
  store_release(links_.record->failed, 1u);
}

}  // namespace ferry::cuda
