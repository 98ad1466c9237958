#include "cpu/fabric/host_waits.h"

#include "cpu/fabric/worker_pool.h"
#include "ferry/detail/layout/call_word.h"

namespace ferry::cpu {

HostWaits::HostWaits(int rank, int ranks, const SignalWord* abort_words, const std::uint8_t* masked)
    : rank_(rank),
      ranks_(ranks),
      abort_words_(abort_words),
      masked_(masked),
      waited_ns_(static_cast<std::size_t>(ranks)) {}

// The rank has left its exchange without sending this.
bool HostWaits::will_never_come(const WaitSite& site, Epoch wanted) const {
  const Epoch number = site.phase == Phase::dispatching ? number_of_call(wanted) : wanted;
  return masked_[site.peer] == 0 && never_comes(load_relaxed(abort_words_[site.peer]), site.phase, number);
}

bool HostWaits::has_abort(const WaitSite& site, Epoch wanted) const {
  if (load_relaxed(failed_) != 0) return true;  // another worker of this rank failed
  if (will_never_come(site, wanted)) return true;
  return !first_abort(ranks_,
                      [this](int peer) { return masked_[peer] != 0 ? Epoch{0} : load_relaxed(abort_words_[peer]); })
              .nobody() ||
         rank_of_other_routing() >= 0;
}

Epoch HostWaits::abort_of(int peer) const {
  const Epoch word = masked_[peer] != 0 ? Epoch{0} : load_acquire(abort_words_[peer]);
  const int named = rank_waited_for(word);
  return named >= 0 && named < ranks_ && masked_[named] != 0 ? naming_itself(word, peer) : word;
}

int HostWaits::rank_of_other_routing() const {
  for (int peer = 0; call_words_ != nullptr && peer < ranks_; ++peer)
    if (masked_[peer] == 0 && is_of_other_routing(load_acquire(call_words_[peer]), my_call_)) return peer;
  return -1;
}

// I22
bool HostWaits::have_same_routing(Operation operation) {
  const int other = rank_of_other_routing();
  if (other < 0) return true;
  const std::lock_guard lock(guard_);
  if (load_relaxed(failed_) == 0) note_other_routing(operation, other);
  return false;
}

// The lock is held.
void HostWaits::note_other_routing(Operation operation, int peer) {
  failure_ = {operation, Phase::handle, rank_, peer, rank_, -1, load_relaxed(call_words_[peer]), my_call_};
  waited_for_ = peer;
  store_release(failed_, std::uint32_t{1});
}

void HostWaits::note_waited(const WaitSite& site, bool arrived, const TraceSpan& span) {
  fetch_add_relaxed(waited_ns_[static_cast<std::size_t>(site.peer)], span.nanoseconds());
  if (trace_ != nullptr) trace_->note_wait({site, WorkerPool::this_worker(), arrived, span});
}

void HostWaits::note_failure(Waited waited, const WaitSite& site, Epoch seen, Epoch wanted) {
  const std::lock_guard lock(guard_);
  if (load_relaxed(failed_) != 0) return;
  const int other = waited == Waited::aborted ? rank_of_other_routing() : -1;
  const auto word_of = [this](int peer) { return abort_of(peer); };
  const FirstAbort first = first_abort(waited == Waited::aborted ? ranks_ : 0, word_of);
  if (first.nobody() && other >= 0) return note_other_routing(site.operation, other);
  const bool is_call = site.phase == Phase::dispatching;
  waited_for_ = site.peer;
  failure_ = failed_wait(site, rank_, waited == Waited::aborted ? ranks_ : 0, is_call ? number_of_call(seen) : seen,
                         is_call ? number_of_call(wanted) : wanted, word_of);
  if (!first.nobody() && (abort_of(first.reported_by) & kOtherRouting) != 0) failure_.phase = Phase::handle;
  store_release(failed_, std::uint32_t{1});
}

void HostWaits::give_up(Operation operation, Epoch epoch) {
  const std::lock_guard lock(guard_);
  failure_ = {operation, Phase::none, rank_, rank_, rank_, -1, epoch, epoch};
  waited_for_ = rank_;
  store_release(failed_, std::uint32_t{1});
}

Epoch HostWaits::end_waits(Epoch word) {
  const std::lock_guard lock(guard_);
  if (load_relaxed(failed_) != 0) return word;
  failure_.my_rank = failure_.missing_rank = failure_.reported_by = waited_for_ = rank_;
  failure_.absence = Absence::aborted;
  abort_ = word;
  store_release(failed_, std::uint32_t{1});
  return word;
}

Absence HostWaits::absence_of(int missing) const {
  if (missing == rank_) return failure().absence;
  return ferry::absence_of(abort_of(missing), missing);
}

WaitRecord HostWaits::failure() const {
  const std::lock_guard lock(guard_);
  return failure_;
}

Epoch HostWaits::abort_value() const {
  const std::lock_guard lock(guard_);
  if (abort_ != 0) return abort_;
  const bool is_own = failure_.reported_by == rank_;
  return abort_word(failure_.epoch_wanted, !is_own, waited_for_) |
         (is_own && failure_.phase == Phase::handle ? kOtherRouting : 0);
}

int HostWaits::find_culprit() const {
  HostPacer moment(moment_for_words(deadline_));
  return find_culprit(moment);
}

}  // namespace ferry::cpu
