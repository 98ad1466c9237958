// RemoteFabric: the DeviceFabric of worlds with remote ranks.
//   - Direct ranks are reached as by DirectFabric: stores and bulk copies.
//   - Remote ranks are reached by a transport's puts from symmetric memory: the seven calls of RemotePuts.
// A message to remote ranks leaves from its send buffer (I15). A warp for each rank puts it, and the signal follows the
// data of that put (I5, I7). Only the routing of a round (I2) and results of a round that may be given up (I8) need
// more order.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "ferry/detail/base/copy.h"
#include "ferry/detail/cuda/fabric/compiled_hooks.cuh"
#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/fabric/direct_stores.cuh"
#include "ferry/detail/cuda/fabric/waiter.cuh"

namespace ferry::cuda {

// A transport: puts from this rank's symmetric memory to that of `peer`. It is all that the author of a transport
// writes for kernels (docs/adding-a-transport.md). Offsets are into the symmetric memory of the exchange. One thread
// makes a call, unless a comment says a warp. Only quiet and wait_signal may wait: quiet for the network, wait_signal
// never long, since the word has its value already.
template <class P>
concept RemotePuts = requires(const P& puts, const PeerLinks& links, int peer, std::size_t offset,
                              const std::byte* source, std::size_t bytes, std::size_t word, Epoch value) {
  { P::kName } -> std::convertible_to<const char*>;  // of the transport; no two transports have the same
  P(links);
  puts.put(peer, offset, source, bytes);                      // by a warp; C1
  puts.put_signal(peer, offset, source, bytes, word, value);  // by a warp; C3
  puts.signal(peer, word, value);                             // C4; after fence: C2
  puts.store32(peer, offset, std::uint32_t{});                // one aligned word, whole or not at all
  puts.fence();  // orders, at each rank: earlier puts of this GPU before later puts and signals of this thread
  puts.quiet();  // all puts of this GPU have arrived
  puts.wait_signal(word, value);  // makes visible what the sender put before this signal (C6)
};

template <RemotePuts P>
class RemoteReach {
 public:
  using Puts = P;
  static constexpr bool kHasRemoteRanks = true;
  __device__ explicit RemoteReach(const PeerLinks& links) : links_(links) {}
  __device__ bool is_direct(int peer) const { return heap_of(peer) != nullptr; }
  // Kernels have the addresses of the first ranks in their parameter, those of more ranks in device memory.
  __device__ std::byte* heap_of(int peer) const {
    return peer < kMaxGpuRanks ? links_.heap[peer] : links_.more_heaps[peer - kMaxGpuRanks];
  }
  __device__ void signal(int peer, std::size_t word, Epoch value) const {
    if (is_direct(peer))
      store_release(*reinterpret_cast<SignalWord*>(heap_of(peer) + word), value);
    else
      P(links_).signal(peer, word, value);
  }
  __device__ void signal_without_order(int peer, std::size_t word, Epoch value) const {
    if (is_direct(peer))
      store_relaxed(*reinterpret_cast<SignalWord*>(heap_of(peer) + word), value);
    else
      P(links_).signal(peer, word, value);
  }
  __device__ void see_puts_of(int peer, std::size_t word, Epoch value) const {
    if (!is_direct(peer)) P(links_).wait_signal(word, value);
  }

 private:
  const PeerLinks& links_;
};

// RemoteTable: entries that a thread has stored in this rank's own table and that remote ranks do not have yet. A warp
// puts the run of entries that its threads stored.
class RemoteTable {
 public:
  // Counts entries from the first table on. 32 bits suffice (cuda/exchange/plan/shape_limits.h).
  __device__ void note(const Plan& plan, std::size_t offset) {
    const auto entry = static_cast<std::uint32_t>((offset - plan.map.begin(HeapMap::kTables)) / sizeof(RoutingEntry));
    first_ = entry < first_ ? entry : first_;
    end_ = entry + 1 > end_ ? entry + 1 : end_;
  }
  // All threads of a warp call it.
  template <RemotePuts P>
  __device__ void put(const PeerLinks& links, const Plan& plan) {
    const std::uint32_t first = __reduce_min_sync(kAllLanes, first_);
    const std::uint32_t end = __reduce_max_sync(kAllLanes, end_);
    first_ = kNothing;
    end_ = 0;
    if (first >= end) return;
    __syncwarp();
    const std::size_t offset = plan.map.begin(HeapMap::kTables) + first * sizeof(RoutingEntry);
    for (int peer = 0; peer < links.size; ++peer)
      if (!RemoteReach<P>(links).is_direct(peer) && !plan.is_masked(peer))
        P(links).put(peer, offset, links.own + offset, (end - first) * sizeof(RoutingEntry));
  }

 private:
  static constexpr std::uint32_t kNothing = 0xFFFFFFFFu;
  std::uint32_t first_ = kNothing;
  std::uint32_t end_ = 0;
};

// `H`: a caller's hooks.
template <RemotePuts P, class H = NoHooks>
class RemoteFabric {
 public:
  using Group = SyncedTeam;
  using WarpGroup = WarpwiseTeam;
  using Hooks = CompiledHooks<H>;
  using Reach = RemoteReach<P>;
  using Waits = Waiter<Reach>;
  template <class OtherHooks>
  using WithHooks = RemoteFabric<P, OtherHooks>;
  static constexpr bool kHasRemoteRanks = true;
  static constexpr const char* kName = P::kName;

  __device__ RemoteFabric(const PeerLinks& links, const Plan& plan, std::size_t buffer_bytes)
      : links_(links), plan_(plan), hooks_(links.hooks), waits_(links), stores_(links, buffer_bytes) {}

  __device__ const Hooks& hooks() const { return hooks_; }
  __device__ const PeerLinks& links() const { return links_; }
  __device__ std::byte* local(std::size_t offset) const { return links_.own + offset; }
  __device__ std::byte* peer_pointer(int peer, std::size_t offset) const {
    return is_direct(peer) && (peer == links_.rank || in_place_) ? heap_of(peer) + offset : nullptr;
  }
  __device__ void make_in_place() { in_place_ = true; }

  __device__ void use_buffers(std::byte* buffers, const SyncedTeam& team) { stores_.use_buffers(buffers, team); }
  __device__ void store_messages() { stores_.store_messages(); }
  __device__ std::byte* staging(const SyncedTeam& g, std::byte* = nullptr) { return stores_.next_buffer(g); }
  __device__ void put_then_signal(const SyncedTeam& g, int peer, const SignalledPut& put) {
    put_then_signal_each(g, {&peer, 1}, put);
  }
  __device__ void put_then_signal_each(const SyncedTeam& g, const Destinations& to, const SignalledPut& put);
  __device__ void finish_puts(const SyncedTeam& g) { stores_.finish(g); }
  // I8: a round may be given up after combine_async. Then nothing of it may be in flight when the next kernel begins.
  // Stores are complete by then; puts need quiet.
  __device__ void complete_puts(const SyncedTeam& g) {
    finish_puts(g);
    if (g.thread() == 0) P(links_).quiet();
    g.sync();
  }

  // C2: what threads of the team put to the peer comes before what they put and signal from now on.
  __device__ void fence_puts(const SyncedTeam& g, int peer) const {
    if (is_direct(peer)) return;
    g.sync();
    P(links_).fence();
  }
  // C2. I7 needs this order for results that were stored through a pointer, I2 for the routing.
  __device__ void signal_after_puts(const SyncedTeam& g, int peer, std::size_t word, Epoch value) {
    table_.put<P>(links_, plan_);
    g.sync();
    if (g.thread() == 0) signal_behind_puts(peer, word, value);
  }
  // I2: header, table and counts are several puts, and only a fence orders them before the signal. A thread for each
  // peer fences and signals. Its fence covers what the other threads put before the barrier.
  __device__ void signal_each_after_puts(const SyncedTeam& g, int ranks, std::size_t word, Epoch value,
                                         const std::uint8_t* skipped, int words = 1) {
    table_.put<P>(links_, plan_);
    g.sync();
    for_each_signal(g, ranks, word, skipped, words,
                    [&](int peer, std::size_t at) { signal_behind_puts(peer, at, value); });
  }
  // An entry for a remote rank is only noted. Its run is put later from this rank's own table, which has it, too.
  __device__ void store(int peer, std::size_t offset, const RoutingEntry& entry) {
    if (is_direct(peer))
      *reinterpret_cast<RoutingEntry*>(heap_of(peer) + offset) = entry;
    else
      table_.note(plan_, offset);
  }
  __device__ void store_word(int peer, std::size_t offset, std::uint32_t value) const {
    if (is_direct(peer))
      store_relaxed(*reinterpret_cast<SystemWord<std::uint32_t>*>(heap_of(peer) + offset), value);
    else
      P(links_).store32(peer, offset, value);
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
  __device__ bool is_direct(int peer) const { return Reach(links_).is_direct(peer); }
  __device__ std::byte* heap_of(int peer) const { return Reach(links_).heap_of(peer); }
  __device__ void signal_behind_puts(int peer, std::size_t word, Epoch value) const {
    if (is_direct(peer)) return store_release(stores_.word_at(peer, word), value);
    P(links_).fence();
    P(links_).signal(peer, word, value);
  }
  __device__ void put_to_remote(const SyncedTeam& g, const Destinations& to, const SignalledPut& put) const;

  const PeerLinks& links_;
  const Plan& plan_;
  Hooks hooks_;
  Waits waits_;
  DirectStores<Reach> stores_;
  RemoteTable table_;
  bool in_place_ = false;
};

// Puts from the send buffer, a warp for each remote rank. I5, I7: the signal follows the data of its own put; no other
// order is needed.
template <RemotePuts P, class H>
__device__ void RemoteFabric<P, H>::put_to_remote(const SyncedTeam& g, const Destinations& to,
                                                  const SignalledPut& put) const {
  const int warp = g.thread() / 32;
  const int warps = g.size() / 32;
  int remote = 0;
  for (int i = 0; i < to.count; ++i) {
    if (is_direct(to.rank[i])) continue;
    if (warps - 1 - remote++ % warps == warp)  // starts with the last warp: the first has the bulk copies
      P(links_).put_signal(to.rank[i], put.offset, put.source, put.bytes, put.word, put.value);
  }
}

// `source` is the team's buffer, or the send buffer of this message or result.
template <RemotePuts P, class H>
__device__ void RemoteFabric<P, H>::put_then_signal_each(const SyncedTeam& g, const Destinations& to,
                                                         const SignalledPut& put) {
  bool any_remote = false;
  for (int i = 0; i < to.count; ++i) any_remote = any_remote || !is_direct(to.rank[i]);
  const bool in_buffer = __isShared(put.source) != 0;
#if __CUDA_ARCH__ >= 900
  if (in_buffer && stores_.copies_messages())
    stores_.copy_then_signal_each(g, to, put);
  else
    stores_.store_then_signal_each(g, to, put);
#else
  stores_.store_then_signal_each(g, to, put);
#endif
  if (!any_remote) return;
  SignalledPut sent = put;
  if (in_buffer) {
    std::byte* buffer = local(plan_.map.send_buffer_of(put.offset, to.rank[0]));  // I15
    copy_bytes(g, buffer, put.source, put.bytes);
    sent.source = buffer;
  }
  g.sync();
  put_to_remote(g, to, sent);
  g.sync();
}

}  // namespace ferry::cuda
