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
  for (int peer = 0; peer < ranks_; ++peer)
    if (masked_[peer] == 0 && ends_waits(load_relaxed(abort_words_[peer]))) return true;
  return false;
}

void HostWaits::note_waited(int peer, Clock::duration time) {
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  fetch_add_relaxed(waited_ns_[static_cast<std::size_t>(peer)], static_cast<std::uint64_t>(nanoseconds));
}

// I10: a victim reports whom the abort word names, not the rank that sent it.
void HostWaits::note_failure(Waited waited, const WaitSite& site, Epoch seen, Epoch wanted) {
  const std::lock_guard lock(guard_);
  if (load_relaxed(failed_) != 0) return;
  failure_ = {site.operation, site.phase, rank_, site.peer, rank_, site.token, seen, wanted};
  waited_for_ = site.peer;
  for (int peer = 0; waited == Waited::aborted && peer < ranks_; ++peer) {
    const Epoch value = masked_[peer] != 0 ? 0 : load_acquire(abort_words_[peer]);
    if (!ends_waits(value)) continue;
    failure_.missing_rank = rank_in(value);
    failure_.reported_by = peer;
    break;
  }
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
  const Epoch told = failure_.reported_by == rank_ ? 0 : kTold;
  return failure_.epoch_wanted << 16 | told | static_cast<Epoch>(waited_for_ + 1);
}

// I10
int HostWaits::find_culprit() const {
  using std::chrono::milliseconds;
  const int named = failure().missing_rank;
  HostPacer moment(std::clamp(deadline_ / 2, milliseconds(50), milliseconds(500)));
  std::vector<bool> seen(static_cast<std::size_t>(ranks_));
  int suspect = named;
  while (!seen[static_cast<std::size_t>(suspect)]) {
    seen[static_cast<std::size_t>(suspect)] = true;
    int next = waited_for_;
    if (suspect != rank_) {
      const SignalWord& word = abort_words_[suspect];
      const auto never = [] { return false; };
      if (wait_at_least(word, 1, never, moment) != Waited::arrived) return suspect;
      next = rank_in(load_acquire(word));
    }
    suspect = next;
  }
  return named;  // they wait for each other: the first to give up is believed
}

}  // namespace ferry::cpu
