#include "cpu/host_waits.h"

namespace ferry::cpu {

HostWaits::HostWaits(int rank, int ranks, const SignalWord* abort_words, const std::uint8_t* masked)
    : rank_(rank),
      ranks_(ranks),
      abort_words_(abort_words),
      masked_(masked),
      waited_ns_(static_cast<std::size_t>(ranks)) {}

bool HostWaits::has_abort() const {
  if (load_relaxed(failed_) != 0) return true;  // another worker of this rank failed
  return !first_abort(ranks_, [this](int peer) {
            return masked_[peer] != 0 ? Epoch{0} : load_relaxed(abort_words_[peer]);
          }).nobody();
}

void HostWaits::note_waited(int peer, Clock::duration time) {
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  fetch_add_relaxed(waited_ns_[static_cast<std::size_t>(peer)], static_cast<std::uint64_t>(nanoseconds));
}

void HostWaits::note_failure(Waited waited, const WaitSite& site, Epoch seen, Epoch wanted) {
  const std::lock_guard lock(guard_);
  if (load_relaxed(failed_) != 0) return;
  waited_for_ = site.peer;
  failure_ = failed_wait(site, rank_, waited == Waited::aborted ? ranks_ : 0, seen, wanted,
                         [this](int peer) { return masked_[peer] != 0 ? Epoch{0} : load_acquire(abort_words_[peer]); });
  store_release(failed_, std::uint32_t{1});
}

void HostWaits::give_up(Operation operation, Epoch epoch) {
  const std::lock_guard lock(guard_);
  failure_ = {operation, Phase::none, rank_, rank_, rank_, -1, epoch, epoch};
  waited_for_ = rank_;
  store_release(failed_, std::uint32_t{1});
}

WaitRecord HostWaits::failure() const {
  const std::lock_guard lock(guard_);
  return failure_;
}

Epoch HostWaits::abort_value() const {
  const std::lock_guard lock(guard_);
  return abort_word(failure_.epoch_wanted, failure_.reported_by != rank_, waited_for_);
}

int HostWaits::find_culprit() const {
  HostPacer moment(moment_for_words(deadline_));
  return find_culprit(moment);
}

}  // namespace ferry::cpu
