// DirectFabric: the DeviceFabric of ranks that are all direct (one host, NVLink).
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/cuda/fabric/compiled_hooks.cuh"
#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/fabric/direct_stores.cuh"
#include "ferry/detail/cuda/fabric/waiter.cuh"

namespace ferry::cuda {

class DirectReach {
 public:
  static constexpr bool kHasRemoteRanks = false;
  __device__ explicit DirectReach(const PeerLinks& links) : links_(links) {}
  __device__ static bool is_direct(int) { return true; }
  __device__ std::byte* heap_of(int peer) const { return links_.heap[peer]; }
  __device__ void signal(int peer, std::size_t word, Epoch value) const {
    store_release(*reinterpret_cast<SignalWord*>(heap_of(peer) + word), value);
  }
  __device__ void signal_without_order(int peer, std::size_t word, Epoch value) const {
    store_relaxed(*reinterpret_cast<SignalWord*>(heap_of(peer) + word), value);
  }
  __device__ static void see_puts_of(int, std::size_t, Epoch) {}  // the acquire of the word suffices

 private:
  const PeerLinks& links_;
};
static_assert(RankReach<DirectReach>);

// `H`: a caller's hooks.
template <class H = NoHooks>
class DirectFabric {
 public:
  using Group = SyncedTeam;
  using WarpGroup = WarpwiseTeam;
  using Hooks = CompiledHooks<H>;
  using Reach = DirectReach;
  using Waits = Waiter<Reach>;
  template <class OtherHooks>
  using WithHooks = DirectFabric<OtherHooks>;
  static constexpr bool kHasRemoteRanks = false;
  static constexpr const char* kName = "direct";

  __device__ DirectFabric(const PeerLinks& links, const Plan&, std::size_t buffer_bytes)
      : links_(links), hooks_(links.hooks), waits_(links), stores_(links, buffer_bytes) {}

  __device__ const Hooks& hooks() const { return hooks_; }
  __device__ const PeerLinks& links() const { return links_; }
  __device__ std::byte* local(std::size_t offset) const { return links_.own + offset; }
  __device__ std::byte* peer_pointer(int peer, std::size_t offset) const {
    return peer == links_.rank || in_place_ ? links_.heap[peer] + offset : nullptr;
  }
  __device__ void make_in_place() { in_place_ = true; }

  __device__ void use_buffers(std::byte* buffers, const SyncedTeam& team) { stores_.use_buffers(buffers, team); }
  __device__ void store_messages() { stores_.store_messages(); }
  __device__ std::byte* staging(const SyncedTeam& g, std::byte* = nullptr) { return stores_.next_buffer(g); }
  __device__ void put_then_signal(const SyncedTeam& g, int peer, const SignalledPut& put) {
    put_then_signal_each(g, {&peer, 1}, put);
  }
  __device__ void put_then_signal_each(const SyncedTeam& g, const Destinations& to, const SignalledPut& put) {
#if __CUDA_ARCH__ >= 900
    if (stores_.copies_messages()) return stores_.copy_then_signal_each(g, to, put);
#endif
    stores_.store_then_signal_each(g, to, put);
  }
  __device__ void finish_puts(const SyncedTeam& g) { stores_.finish(g); }
  __device__ void complete_puts(const SyncedTeam&) {}    // I8: stores are complete when the kernel ends
  __device__ void fence_puts(const SyncedTeam&, int) {}  // a barrier before the release suffices

  // I2, I7: a barrier puts the stores of all threads before the release of one thread.
  __device__ void signal_after_puts(const SyncedTeam& g, int peer, std::size_t word, Epoch value) {
    g.sync();
    if (g.thread() == 0) store_release(stores_.word_at(peer, word), value);
  }
  // A thread for each release.
  __device__ void signal_each_after_puts(const SyncedTeam& g, int ranks, std::size_t word, Epoch value,
                                         const std::uint8_t* skipped, int words = 1) {
    g.sync();
    for_each_signal(g, ranks, word, skipped, words,
                    [&](int peer, std::size_t at) { store_release(stores_.word_at(peer, at), value); });
  }
  __device__ void store(int peer, std::size_t offset, const RoutingEntry& entry) const {
    *reinterpret_cast<RoutingEntry*>(links_.heap[peer] + offset) = entry;
  }
  __device__ void store_word(int peer, std::size_t offset, std::uint32_t value) const {
    store_relaxed(*reinterpret_cast<SystemWord<std::uint32_t>*>(links_.heap[peer] + offset), value);
  }

  __device__ const Waits& waits() const { return waits_; }
  template <class G>
  __device__ bool wait_at_least(const G& g, std::size_t word, Epoch target, const WaitSite& site) const {
    return waits_.wait_at_least(g, word, target, site);
  }
  template <class G, class WordOf, class SiteOf>
  __device__ bool wait_for_each(const G& g, int count, const WordOf& word, Epoch target, const SiteOf& site,
                                const std::uint8_t* skipped) const {
    return waits_.wait_for_each(g, count, word, target, site, skipped);
  }
  template <class G>
  __device__ bool await_entries(const G& g, const Plan& plan, Epoch routing, Epoch epoch, const TokenAt& at,
                                int num_tokens) {
    return waits_.await_entries(g, plan, routing, epoch, at, num_tokens);
  }

 private:
  const PeerLinks& links_;
  Hooks hooks_;
  Waits waits_;
  DirectStores<Reach> stores_;
  bool in_place_ = false;
};
static_assert(DeviceFabric<DirectFabric<>>);

}  // namespace ferry::cuda
