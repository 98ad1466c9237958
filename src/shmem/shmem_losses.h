// ShmemLosses: the word that a process writes at all others when it gives up on one of them, in an exchange or in
// set-up. A process that waits for it elsewhere so learns which process it missed (I10).
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "ferry/detail/layout/abort_word.h"
#include "ferry/world.h"
#include "shmem/process/shmem_waits.h"
#include "shmem/symmetric_memory.h"

namespace ferry::cpu {

class ShmemLosses {
 public:
  static std::size_t bytes(int processes) { return static_cast<std::size_t>(processes) * sizeof(SignalWord); }

  // `memory` is connected to all processes, and its words are zero.
  explicit ShmemLosses(std::unique_ptr<SymmetricMemory> memory)
      : memory_(std::move(memory)), left_behind_(static_cast<std::size_t>(memory_->ranks())) {}

  // A second word to the same process must differ from the first, so a running number stands in place of the epoch.
  void tell(int process, Epoch abort_word) {
    const Epoch word = (fetch_add_relaxed(told_, Epoch{1}) + 1) << 16 | (abort_word & 0xffff);
    const std::size_t offset = at(memory_->rank());
    if (std::byte* to = memory_->pointer(process, offset))
      return store_release(*reinterpret_cast<SignalWord*>(to), word);
    shmem::fence();
    memory_->signal_rare(process, offset, word);
  }

  // `process` has gone on. Its words so far are about a failure that the job has left behind.
  void leave_behind(int process) {
    store_release(left_behind_[static_cast<std::size_t>(process)], load_acquire(word_of(process)));
  }

  // The process that caused the failure in which `missing` did not come within `deadline`. A word counts only if
  // may_be_missing(the process that it names).
  template <class MayBeMissing>
  int find_culprit(int missing, std::chrono::milliseconds deadline, const MayBeMissing& may_be_missing) const {
    ShmemPacer moment(moment_for_words(deadline));
    return follow_abort_words(missing, memory_->rank(), missing, memory_->ranks(), [&](int suspect) {
      const SignalWord& word = word_of(suspect);
      const auto counts = [&] {
        const Epoch value = load_acquire(word);
        return value != load_acquire(left_behind_[static_cast<std::size_t>(suspect)]) &&
               may_be_missing(rank_waited_for(value));
      };
      return wait_at_least(word, kNever, counts, moment) == Waited::aborted ? load_acquire(word) : Epoch{0};
    });
  }

 private:
  static constexpr Epoch kNever = ~Epoch{0};
  static std::size_t at(int process) { return static_cast<std::size_t>(process) * sizeof(SignalWord); }

  const SignalWord& word_of(int process) const {
    return *reinterpret_cast<const SignalWord*>(memory_->local(at(process)));
  }

  std::unique_ptr<SymmetricMemory> memory_;
  std::vector<DeviceWord<Epoch>> left_behind_;  // [processes]: the last word that no longer counts
  DeviceWord<Epoch> told_;
};

}  // namespace ferry::cpu
