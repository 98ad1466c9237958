// ShmemRuns: coalesces messages to remote ranks. Messages of neighbouring tokens are neighbours in the send buffer and
// at the receiver, and so are their signal words. So a run of messages travels as one put, and its signals as another.
// Over TCP a put costs more than the bytes of a signal, and nearly as much as the bytes of a message.
#pragma once

#include <algorithm>
#include <mutex>
#include <vector>

#include "shmem/symmetric_memory.h"

namespace ferry::cpu {

class ShmemRuns {
 public:
  explicit ShmemRuns(const SymmetricMemory& memory)
      : memory_(memory), runs_(static_cast<std::size_t>(memory.ranks())) {}

  // put_then_signal to `peer` (C3), at once or with later ones; flush() sends at the latest.
  void add(int peer, std::size_t offset, const std::byte* source, std::size_t bytes, std::size_t word, Epoch value) {
    const std::lock_guard lock(guard_);
    Run& run = runs_[static_cast<std::size_t>(peer)];
    if (!run.goes_on_with(offset, source, word, value)) {
      send(peer, run);
      run = {offset, source, 0, word, value, 0};
    }
    run.bytes += bytes;
    if (++run.count == SymmetricMemory::kMostTogether) send(peer, run);
  }

  void flush() {
    const std::lock_guard lock(guard_);
    for (std::size_t peer = 0; peer < runs_.size(); ++peer) send(static_cast<int>(peer), runs_[peer]);
  }

 private:
  struct Run {
    std::size_t offset = 0;
    const std::byte* source = nullptr;
    std::size_t bytes = 0;
    std::size_t word = 0;
    Epoch value = 0;
    std::size_t count = 0;  // messages that wait

    bool goes_on_with(std::size_t next_offset, const std::byte* next, std::size_t next_word, Epoch next_value) const {
      return count != 0 && next_offset == offset + bytes && next == source + bytes && next_value == value &&
             next_word == word + count * sizeof(SignalWord);
    }
  };

  // I5: the fence stands between the messages and their signals.
  void send(int peer, Run& run) {
    if (run.count == 0) return;
    if (run.bytes != 0) memory_.put(peer, run.offset, run.source, run.bytes);
    shmem::fence();
    memory_.signal_together(peer, run.word, run.value, run.count);
    run.count = 0;
  }

  const SymmetricMemory& memory_;
  std::mutex guard_;
  std::vector<Run> runs_;
};

}  // namespace ferry::cpu
