// ShmemLosses: what each process of a job says to all others when it gives up on one of them, in an exchange or in
// set-up. So one that waits elsewhere for a process that gave up learns whom that one missed (I10).
#pragma once

#include <memory>
#include <utility>

#include "cpu/shmem_block.h"
#include "cpu/shmem_waits.h"
#include "ferry/world.h"
#include "shared/abort_word.h"

namespace ferry::cpu {

class ShmemLosses {
 public:
  static std::size_t bytes(int processes) { return static_cast<std::size_t>(processes) * sizeof(SignalWord); }

  // `block` is connected to all processes, and its words are zero.
  explicit ShmemLosses(std::unique_ptr<ShmemBlock> block) : block_(std::move(block)) {}

  // `word` is an abort word.
  void tell(int process, Epoch word) const {
    const std::size_t place = at(block_->rank());
    if (std::byte* to = block_->pointer(process, place)) return store_release(*reinterpret_cast<SignalWord*>(to), word);
    shmem::fence();
    block_->signal_rare(process, place, word);
  }

  // The process that a failure goes back to, where `missing` did not come within `deadline`. A word counts where
  // `may_be_missing` says so of the process that it names; else it is about a failure that the job has left behind.
  template <class MayBeMissing>
  int find_culprit(int missing, std::chrono::milliseconds deadline, const MayBeMissing& may_be_missing) const {
    ShmemPacer moment(moment_for_words(deadline));
    return follow_abort_words(missing, block_->rank(), missing, block_->ranks(), [&](int suspect) {
      const SignalWord& word = *reinterpret_cast<const SignalWord*>(block_->local(at(suspect)));
      const auto counts = [&] {
        const Epoch value = load_acquire(word);
        return value != 0 && may_be_missing(rank_waited_for(value));
      };
      return wait_at_least(word, kNever, counts, moment) == Waited::aborted ? load_acquire(word) : Epoch{0};
    });
  }

 private:
  static constexpr Epoch kNever = ~Epoch{0};
  static std::size_t at(int process) { return static_cast<std::size_t>(process) * sizeof(SignalWord); }

  std::unique_ptr<ShmemBlock> block_;
};

}  // namespace ferry::cpu
