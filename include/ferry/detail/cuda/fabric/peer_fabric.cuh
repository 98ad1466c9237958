// PeerFabric: ranks whose memory a kernel can store to (one host, NVLink). Messages are made in a buffer in shared
// memory and leave by bulk copies, to all peers at once; each peer is one thread's, which waits for its copy and then
// signals, while the next message is made. Large rounds store them. Who waits is one thread, or, for counts, each for
// its own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/base/copy.h"
#include "ferry/detail/cuda/fabric/direct_stores.cuh"
#include "ferry/detail/cuda/kernels/device_state.h"
#include "ferry/detail/cuda/team/ptx.cuh"
#include "ferry/detail/cuda/team/team_group.cuh"
#include "ferry/detail/protocol/fabric.h"
#include "ferry/detail/protocol/round.h"

namespace ferry::cuda {

// Sets a word at a rank whose memory can be stored to.
class PeerSignal {
 public:
  __device__ explicit PeerSignal(const PeerLinks& links) : links_(links) {}
  __device__ void operator()(int peer, std::size_t word, Epoch value) const {
    store_release(*reinterpret_cast<SignalWord*>(links_.heap[peer] + word), value);
  }

 private:
  const PeerLinks& links_;
};

class PeerFabric : public DirectStores<PeerFabric, PeerSignal> {
 public:
  static constexpr bool kHasRemoteRanks = false;

  __device__ PeerFabric(const PeerLinks& links, const Plan&, std::size_t buffer_bytes)
      : DirectStores(links, buffer_bytes) {}

  __device__ bool is_direct(int) const { return true; }
  // Others are reached from the buffer: a result is on its way while the next one is made.
  __device__ std::byte* peer_pointer(int peer, std::size_t offset) const {
    return goes_directly(peer) ? links_.heap[peer] + offset : nullptr;
  }

  // I2, I7: the stores of all threads come before the release of one.
  __device__ void signal_after_puts(const SyncedTeam& g, int peer, std::size_t word, Epoch value) {
    g.sync();
    if (g.thread() == 0) store_release(word_at(peer, word), value);
  }
  // `words` that follow each other. Each release is a thread's of its own.
  __device__ void signal_each_after_puts(const SyncedTeam& g, int ranks, std::size_t word, Epoch value,
                                         const std::uint8_t* skipped, int words = 1) {
    g.sync();
    for_each_signal(g, ranks, word, skipped, words,
                    [&](int peer, std::size_t at) { store_release(word_at(peer, at), value); });
  }
  // A small value by one thread; a signal_each_after_puts follows.
  template <class T>
  __device__ void store(int peer, std::size_t offset, const T& value) const {
    *reinterpret_cast<T*>(links_.heap[peer] + offset) = value;
  }

  // A word that others know by its tag (I19).
  __device__ void store_word(int peer, std::size_t offset, std::uint32_t value) const {
    store_relaxed(*reinterpret_cast<SystemWord<std::uint32_t>*>(links_.heap[peer] + offset), value);
  }

  // I12: stores to shared memory -> fence -> barrier -> bulk store; the release waits for the copy's own completion. Or
  // by stores, after store_messages().
  __device__ void put_then_signal_each(const SyncedTeam& g, const Destinations& to, const SignalledPut& put);

  // I8: stores are there when the kernel ends.
  __device__ void complete_puts(const SyncedTeam&) {}

  // For one thread; the others learn the answer by a barrier of their own.
  __device__ bool wait_alone(std::size_t word, Epoch target, const WaitSite& site) {
    return wait_on(*reinterpret_cast<const SignalWord*>(local(word)), target, site);
  }
};

__device__ inline void PeerFabric::put_then_signal_each(const SyncedTeam& g, const Destinations& to,
                                                        const SignalledPut& put) {
#if __CUDA_ARCH__ >= 900
  if (stores_messages_) return store_then_signal_each(g, to, put);
  ptx::fence_shared_for_bulk();
  g.sync();
  if (g.thread() < kMostDestinations) {
    SignalWord* signal = nullptr;
    if (g.thread() < to.count) {
      const int peer = to.rank[g.thread()];
      ptx::bulk_store(links_.heap[peer] + put.offset, put.source, put.bytes);
      signal = &word_at(peer, put.word);
    }
    signal_.commit(signal, put.value);
  }
#else
  store_then_signal_each(g, to, put);
#endif
}

static_assert(Fabric<PeerFabric>);

}  // namespace ferry::cuda
