// PeerFabric: GPUs that map each other's memory. A put is a copy by the group's threads, a signal a release store by
// one of them. Plain data: a kernel takes it by value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/fabric.h"
#include "shared/copy.h"
#include "shared/wait.h"

namespace ferry::cuda {

// Lets a deadline in clock cycles pass. Looks for an abort at every turn: that is one load.
class CyclePacer {
 public:
  __device__ explicit CyclePacer(long long cycles) { end_ = clock64() + cycles; }
  __device__ Pace pause() const { return clock64() >= end_ ? Pace::expired : Pace::look_for_abort; }

 private:
  long long end_;
};

struct PeerFabric {
  static constexpr int kMaxPeers = 72;

  int my_rank;
  int num_ranks;
  std::byte* heap[kMaxPeers];         // by rank, as this device sees it
  const SignalWord* abort_words;      // [num_ranks] of this rank
  SystemWord<std::uint32_t>* failed;  // host memory: set when a wait failed
  long long deadline_cycles;

  __device__ int rank() const { return my_rank; }
  __device__ int size() const { return num_ranks; }
  __device__ std::byte* local(std::size_t offset) const { return heap[my_rank] + offset; }
  __device__ std::byte* peer_pointer(int peer, std::size_t offset) const { return heap[peer] + offset; }

  template <ThreadGroup G>
  __device__ void put(const G& g, int peer, std::size_t offset, const void* source, std::size_t bytes) {
    std::byte* to = peer_pointer(peer, offset);
    if (to != source) copy_bytes(g, to, static_cast<const std::byte*>(source), bytes);
  }
  template <ThreadGroup G>
  __device__ void put_then_signal(const G& g, int peer, std::size_t offset, const void* source, std::size_t bytes,
                                  std::size_t word, Epoch value) {
    put(g, peer, offset, source, bytes);
    signal_after_puts(g, peer, word, value);
  }
  // I5, I7: the group's stores happen before its barrier, that before the release.
  template <ThreadGroup G>
  __device__ void signal_after_puts(const G& g, int peer, std::size_t word, Epoch value) {
    g.sync();
    if (g.thread() == 0) store_release(*reinterpret_cast<SignalWord*>(peer_pointer(peer, word)), value);
  }
  template <ThreadGroup G>
  __device__ void signal_without_order(const G& g, int peer, std::size_t word, Epoch value) {
    if (g.thread() == 0) store_release(*reinterpret_cast<SignalWord*>(peer_pointer(peer, word)), value);
  }
  template <ThreadGroup G>
  __device__ bool wait_at_least(const G& g, std::size_t word, Epoch target, const WaitSite&) {
    std::uint32_t lost = 0;
    if (g.thread() == 0) {
      CyclePacer pacer(deadline_cycles);
      const auto aborted = [this] { return has_abort(); };
      const Waited waited = ferry::wait_at_least(*reinterpret_cast<SignalWord*>(local(word)), target, aborted, pacer);
      if (waited != Waited::arrived) store_release(*failed, std::uint32_t{1});
      lost = load_relaxed(*failed);
    }
    lost = g.template max_over<G::kWidth>(lost);
    g.sync();
    return lost == 0;
  }

 private:
  __device__ bool has_abort() const {
    for (int peer = 0; peer < num_ranks; ++peer)
      if (load_relaxed(abort_words[peer]) != 0) return true;
    return load_relaxed(*failed) != 0;
  }
};
static_assert(Fabric<PeerFabric>);

}  // namespace ferry::cuda
