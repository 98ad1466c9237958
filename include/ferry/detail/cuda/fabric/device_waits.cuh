// DeviceWaits: how a thread of a block waits on a word, and whom it tells when the wait fails. The words are the same
// whichever way they are set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/base/wait.h"
#include "ferry/detail/cuda/fabric/pace_clock.h"
#include "ferry/detail/cuda/kernels/device_state.h"
#include "ferry/detail/cuda/team/ptx.cuh"
#include "ferry/detail/layout/abort_word.h"
#include "ferry/detail/protocol/fabric.h"

namespace ferry::cuda {

// Looks at the clock and for an abort only now and then, and where many wait it backs_off between looks at the word,
// after the first few: a waiter's loads are what arrivals compete with.
class DevicePacer {
 public:
  __device__ explicit DevicePacer(const PeerLinks& links) : clock_(links.deadline_ns), naps_(links.backs_off) {}
  __device__ Pace pause() {
    const bool looks = clock_.is_time_to_look();
    if (naps_ && clock_.turns() > kTurnsAwake) __nanosleep(kNap);
    if (!looks) return Pace::again;
    return clock_.has_expired(ptx::global_nanoseconds()) ? Pace::expired : Pace::look_for_abort;
  }
  __device__ std::uint64_t waited_ns() const {
    return clock_.has_looked() ? clock_.waited_ns(ptx::global_nanoseconds()) : 0;
  }

 private:
  static constexpr std::uint32_t kTurnsAwake = 3;
  static constexpr unsigned kNap = 64;  // ns
  PaceClock clock_;
  bool naps_;
};

// Signal(links)(peer, word, value) sets a word at a rank.
template <class Signal>
class DeviceWaits {
 public:
  // False: nobody needs to wait any more.
  template <Scope S>
  __device__ static bool wait(const PeerLinks& links, const Shared<Epoch, S>& watched, Epoch target,
                              const WaitSite& site) {
    return load_acquire(watched) >= target || wait_longer(links, watched, target, site);
  }
  // I19: for a word that carries the tag of `epoch`, and did not when it was looked at. Many threads may wait for words
  // of one source: those that are told to note their time. `told`: the source's `routed`, for the record.
  __device__ __noinline__ static TaggedValue wait_for_tag(const PeerLinks& links,
                                                          const SystemWord<std::uint32_t>& watched, Epoch epoch,
                                                          const SignalWord& told, WaitSite site, bool notes_time) {
    std::uint32_t word = 0;
    const bool arrived = wait_noting(
        notes_time, links, [&] { return links.tag.is_of(word = load_relaxed(watched), epoch); },
        [&] { return load_relaxed(told); }, epoch, site);
    return arrived ? TaggedValue{true, links.tag.value(word)} : TaggedValue{};
  }
  // I19: for counts that other blocks of this rank store with the whole number of their round, as wait_noting.
  template <class There, class Seen>
  __device__ static bool wait_for_counts(const PeerLinks& links, const There& there, const Seen& seen, Epoch epoch,
                                         const WaitSite& site) {
    return wait_noting(threadIdx.x % 32 == 0, links, there, seen, epoch, site);
  }

 private:
  // I21. Kept out of the phases, whose own lines lie closer together for it.
  template <Scope S>
  __device__ __noinline__ static bool wait_longer(const PeerLinks& links, const Shared<Epoch, S>& watched, Epoch target,
                                                  WaitSite site) {
    DevicePacer pacer(links);
    const Waited waited = wait_at_least(
        watched, target, [&links] { return has_abort(links); }, pacer);
    note_time(links, site, pacer);
    if (waited == Waited::arrived) return true;
    fail(links, waited, site, load_relaxed(watched), target);
    return false;
  }
  // Until there(), in a thread beside others that may wait, too, so not every one's time counts. Else the record says
  // that seen() was the newest round.
  template <class There, class Seen>
  __device__ static bool wait_noting(bool notes_time, const PeerLinks& links, const There& there, const Seen& seen,
                                     Epoch epoch, const WaitSite& site) {
    DevicePacer pacer(links);
    const Waited waited = wait_until(
        there, [&links] { return has_abort(links); }, pacer);
    if (notes_time) note_time(links, site, pacer);
    if (waited == Waited::arrived) return true;
    fail(links, waited, site, seen(), epoch);
    return false;
  }
  __device__ static void note_time(const PeerLinks& links, const WaitSite& site, const DevicePacer& pacer) {
    const std::uint64_t passed = pacer.waited_ns();
    if (passed != 0) fetch_add_relaxed(links.waited_ns[site.peer], passed);
  }
  __device__ static const SignalWord& abort_of(const PeerLinks& links, int peer) {
    return reinterpret_cast<const SignalWord*>(links.own + links.abort_words)[peer];
  }
  __device__ static bool has_abort(const PeerLinks& links) {
    if (load_relaxed(links.state->failed) != 0) return true;
    return !first_abort(links.size, [&links](int peer) {
              return links.is_masked(peer) ? Epoch{0} : load_relaxed(abort_of(links, peer));
            }).nobody();
  }
  __device__ static void fail(const PeerLinks& links, Waited waited, const WaitSite& site, Epoch seen, Epoch wanted);
};

// I10: the first to fail tells every rank, and its own memory, whom it waited for; the host follows these words to the
// culprit once the record says that there is one.
template <class Signal>
__device__ void DeviceWaits<Signal>::fail(const PeerLinks& links, Waited waited, const WaitSite& site, Epoch seen,
                                          Epoch wanted) {
  if (fetch_add_acq_rel(links.state->failed, 1u) != 0) return;
  WaitRecord record;
  record.operation = site.operation;
  record.phase = site.phase;
  record.my_rank = links.rank;
  record.missing_rank = site.peer;
  record.reported_by = links.rank;
  record.token = site.token;
  record.block = static_cast<std::int32_t>(blockIdx.x);
  record.epoch_seen = seen;
  record.epoch_wanted = wanted;
  const FirstAbort first = first_abort(waited == Waited::aborted ? links.size : 0, [&links](int peer) {
    return links.is_masked(peer) ? Epoch{0} : load_acquire(abort_of(links, peer));
  });
  if (!first.nobody()) {
    record.missing_rank = first.waited_for;
    record.reported_by = first.reported_by;
  }
  links.record->wait = record;
  const Epoch value = abort_word(wanted, waited == Waited::aborted, site.peer);
  const Signal signal(links);
  for (int peer = 0; peer < links.size; ++peer)
    if (!links.is_masked(peer)) signal(peer, links.my_abort_word, value);
  store_release(links.record->failed, 1u);
}

}  // namespace ferry::cuda
