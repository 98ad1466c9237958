// DirectStores: how a team sends messages and results to direct ranks. There are two ways:
//   - Bulk copies. The team makes the message in its buffer in shared memory. One thread for each rank copies it, waits
//     for the copy and then signals, while the team makes the next message.
//   - Stores. All threads store the message. It arrives sooner, but the team waits for its stores.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/base/copy.h"
#include "ferry/detail/cuda/fabric/bulk_signal.cuh"
#include "ferry/detail/cuda/fabric/waiter.cuh"
#include "ferry/detail/cuda/state/device_state.h"
#include "ferry/detail/cuda/team/ptx.cuh"
#include "ferry/detail/cuda/team/team_group.cuh"
#include "ferry/detail/layout/heap_map.h"

namespace ferry::cuda {

inline constexpr int kMostDestinations = kMaxTopK + 1;  // of a message: the ranks of its experts, and this rank

// `Reach` says which ranks are direct; remote ranks are skipped.
template <RankReach Reach>
class DirectStores {
 public:
  __device__ DirectStores(const PeerLinks& links, std::size_t buffer_bytes)
      : links_(links), buffer_bytes_(HeapMap::whole_lines(buffer_bytes)) {}

  // Sets the buffers of this block's teams. A buffer begins at a line, as a message slot does: a bulk copy between
  // equally aligned addresses sends whole lines.
  __device__ void use_buffers(std::byte* buffers, const SyncedTeam& team) {
    buffer_ = buffers + static_cast<std::size_t>(team.team()) * buffer_bytes_;
  }
  __device__ void store_messages() { stores_messages_ = true; }
  __device__ bool copies_messages() const { return !stores_messages_; }

  // Waits until the buffer has been read, and returns it.
  __device__ std::byte* next_buffer(const SyncedTeam& g) {
    if (g.thread() < kMostDestinations) ptx::bulk_wait_read<0>();
    g.sync();
    return buffer_;
  }
  // Waits until every message has left, and signals it. A block that aborts must call it before it exits.
  __device__ void finish(const SyncedTeam& g) {
    if (g.thread() < kMostDestinations) signal_.finish();
    g.sync();
  }

  // Bulk copies from the buffer. I12: stores to shared memory -> fence -> barrier -> bulk copy -> its completion ->
  // release.
  __device__ void copy_then_signal_each(const SyncedTeam& g, const Destinations& to, const SignalledPut& put) {
    const Reach reach(links_);
    ptx::fence_shared_for_bulk();
    g.sync();
    if (g.thread() < kMostDestinations) {
      SignalWord* signal = nullptr;
      if (g.thread() < to.count && reach.is_direct(to.rank[g.thread()])) {
        const int peer = to.rank[g.thread()];
        ptx::bulk_store(reach.heap_of(peer) + put.offset, put.source, put.bytes);
        signal = &word_at(peer, put.word);
      }
      signal_.commit(signal, put.value);
    }
  }
  // Stores of all threads, 16 bytes each, to one rank after the other. I5: stores -> barrier -> release by a thread for
  // each rank.
  __device__ void store_then_signal_each(const SyncedTeam& g, const Destinations& to, const SignalledPut& put) const {
    const Reach reach(links_);
    g.sync();
    for (std::size_t at = sizeof(Bytes16) * static_cast<std::size_t>(g.thread()); at < put.bytes;
         at += sizeof(Bytes16) * static_cast<std::size_t>(g.size())) {
      const Bytes16 piece = *reinterpret_cast<const Bytes16*>(put.source + at);
#pragma unroll 4
      for (int i = 0; i < to.count; ++i)
        if (reach.is_direct(to.rank[i]))
          *reinterpret_cast<Bytes16*>(reach.heap_of(to.rank[i]) + put.offset + at) = piece;
    }
    g.sync();
    if (g.thread() < to.count && reach.is_direct(to.rank[g.thread()]))
      store_release(word_at(to.rank[g.thread()], put.word), put.value);
  }

  __device__ SignalWord& word_at(int peer, std::size_t word) const {
    return *reinterpret_cast<SignalWord*>(Reach(links_).heap_of(peer) + word);
  }

 private:
  const PeerLinks& links_;
  bool stores_messages_ = false;
  std::byte* buffer_ = nullptr;
  std::size_t buffer_bytes_;
  BulkSignal signal_;  // of this thread's copies
};

// Calls signal(peer, offset) for `words` consecutive words at each rank that is not skipped, a thread for each call.
template <class Signal>
__device__ void for_each_signal(const SyncedTeam& g, int ranks, std::size_t word, const std::uint8_t* skipped,
                                int words, const Signal& signal) {
  for (int i = g.thread(); i < words * ranks; i += g.size()) {
    const int number = words == 1 ? 0 : i / ranks;
    const int peer = i - number * ranks;
    if (skipped == nullptr || skipped[peer] == 0)
      signal(peer, word + static_cast<std::size_t>(number) * sizeof(SignalWord));
  }
}

}  // namespace ferry::cuda
