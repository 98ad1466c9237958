// NvshmemFabric: ranks of one node by stores, as PeerFabric; all others by NVSHMEM, from memory that is symmetric. A
// message to far ranks goes from the send buffer, a warp for each, by a put that signals behind its own data (I5, I7).
// Two things need more order than that, and say so where they ask for it: the routing of a round (I2), and results
// whose round may be given up (I8).
#pragma once

#include <nvshmem.h>
#include <nvshmemx.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ferry/detail/base/copy.h"
#include "ferry/detail/cuda/fabric/direct_stores.cuh"
#include "ferry/detail/cuda/fabric/peer_fabric.cuh"
#include "ferry/detail/cuda/kernels/device_state.h"
#include "ferry/detail/cuda/team/team_rows.cuh"
#include "ferry/detail/protocol/round.h"

namespace ferry::cuda {

// Sets a word at any rank, some time.
class NvshmemSignal {
 public:
  __device__ explicit NvshmemSignal(const PeerLinks& links) : links_(links) {}
  __device__ void operator()(int peer, std::size_t word, Epoch value) const {
    if (links_.heap[peer] != nullptr)
      PeerSignal{links_}(peer, word, value);
    else
      nvshmemx_signal_op(reinterpret_cast<std::uint64_t*>(links_.own + word), value, NVSHMEM_SIGNAL_SET, peer);
  }

 private:
  const PeerLinks& links_;
};

class NvshmemFabric : public DirectStores<NvshmemFabric, NvshmemSignal> {
 public:
  static constexpr bool kHasRemoteRanks = true;

  // links.heap: where this device can store to a rank's memory, null for ranks of other nodes. Rank r is PE r.
  __device__ NvshmemFabric(const PeerLinks& links, const Plan& plan, std::size_t buffer_bytes)
      : DirectStores(links, buffer_bytes), plan_(plan) {}

  __device__ bool is_direct(int peer) const { return links_.heap[peer] != nullptr; }
  __device__ std::byte* peer_pointer(int peer, std::size_t offset) const {
    return is_direct(peer) && goes_directly(peer) ? links_.heap[peer] + offset : nullptr;
  }

  // C2. I7 asks for this order where a result was stored through a pointer, I2 for the routing.
  __device__ void signal_after_puts(const SyncedTeam& g, int peer, std::size_t word, Epoch value) {
    put_table();
    g.sync();
    if (g.thread() != 0) return;
    if (is_direct(peer))
      store_release(word_at(peer, word), value);
    else
      fence_and_signal(peer, word, value);
  }
  // I2: header, table and counts are several puts, which only a fence keeps before the signal. Each peer's signal is a
  // thread's of its own, with a fence of its own: it covers what the others put before the barrier.
  __device__ void signal_each_after_puts(const SyncedTeam& g, int ranks, std::size_t word, Epoch value,
                                         const std::uint8_t* skipped, int words = 1) {
    put_table();
    g.sync();
    for_each_signal(g, ranks, word, skipped, words, [&](int peer, std::size_t at) {
      if (is_direct(peer))
        store_release(word_at(peer, at), value);
      else
        fence_and_signal(peer, at, value);
    });
  }
  // A small value by one thread; a signal_each_after_puts follows. Entries of the own table are only noted where they
  // are to go far: the store to this rank's own table is what a whole run of them is put from.
  template <class T>
  __device__ void store(int peer, std::size_t offset, const T& value) {
    if (is_direct(peer)) {
      *reinterpret_cast<T*>(links_.heap[peer] + offset) = value;
    } else {
      static_assert(std::is_same_v<T, RoutingEntry>);
      note_entry(offset);
    }
  }
  // A word that others know by its tag (I19).
  __device__ void store_word(int peer, std::size_t offset, std::uint32_t value) const {
    if (is_direct(peer))
      store_relaxed(*reinterpret_cast<SystemWord<std::uint32_t>*>(links_.heap[peer] + offset), value);
    else
      nvshmem_uint32_p(reinterpret_cast<std::uint32_t*>(local(offset)), value, peer);
  }

  // `source`: the buffer, or the send buffer of this message or result.
  __device__ void put_then_signal_each(const SyncedTeam& g, const Destinations& to, const SignalledPut& put);

  // I8: of a round that may be given up after combine_async, nothing may still be on its way when the next kernel
  // begins. Stores are there by then; puts are waited for.
  __device__ void complete_puts(const SyncedTeam& g) {
    finish_puts(g);
    if (g.thread() == 0) nvshmem_quiet();
    g.sync();
  }

  __device__ bool wait_alone(std::size_t word, Epoch target, const WaitSite& site) {
    const bool ok = wait_on(*reinterpret_cast<const SignalWord*>(local(word)), target, site);
    // The word has its value, so this returns at once; a network may have to be told to show what came before it (C6).
    if (ok && !is_direct(site.peer)) nvshmem_signal_wait_until(signal_at(word), NVSHMEM_CMP_GE, target);
    return ok;
  }

 private:
  static constexpr std::uint32_t kNothing = 0xFFFFFFFFu;

  __device__ std::uint64_t* signal_at(std::size_t word) const { return reinterpret_cast<std::uint64_t*>(local(word)); }
  __device__ void fence_and_signal(int peer, std::size_t word, Epoch value) const {
    nvshmem_fence();
    nvshmemx_signal_op(signal_at(word), value, NVSHMEM_SIGNAL_SET, peer);
  }

  // In entries from the first table on, which 32 bits count.
  __device__ void note_entry(std::size_t offset) {
    const auto entry = static_cast<std::uint32_t>((offset - plan_.map.begin(HeapMap::kTables)) / sizeof(RoutingEntry));
    table_first_ = entry < table_first_ ? entry : table_first_;
    table_end_ = entry + 1 > table_end_ ? entry + 1 : table_end_;
  }
  __device__ void put_table();

  __device__ void put_to_direct(const SyncedTeam& g, const Destinations& to, const SignalledPut& put);
  __device__ void put_to_remote(const SyncedTeam& g, const Destinations& to, const SignalledPut& put) const;

  const Plan& plan_;
  std::uint32_t table_first_ = kNothing;  // of the own table, stored by this thread and not put to far ranks yet
  std::uint32_t table_end_ = 0;
};

static_assert(Fabric<NvshmemFabric>);

// By all threads of every warp: each warp puts the run of entries that its threads have stored.
__device__ inline void NvshmemFabric::put_table() {
  const std::uint32_t first = __reduce_min_sync(0xFFFFFFFFu, table_first_);
  const std::uint32_t end = __reduce_max_sync(0xFFFFFFFFu, table_end_);
  table_first_ = kNothing;
  table_end_ = 0;
  if (first >= end) return;
  __syncwarp();
  std::byte* from = local(plan_.map.begin(HeapMap::kTables) + first * sizeof(RoutingEntry));
  for (int peer = 0; peer < links_.size; ++peer)
    if (!is_direct(peer) && !plan_.is_masked(peer))
      nvshmemx_putmem_nbi_warp(from, from, (end - first) * sizeof(RoutingEntry), peer);
}

// From the buffer, by bulk copies. I12: stores to shared memory -> fence -> barrier -> bulk store; the release waits
// for the copy's own completion.
__device__ inline void NvshmemFabric::put_to_direct(const SyncedTeam& g, const Destinations& to,
                                                    const SignalledPut& put) {
  ptx::fence_shared_for_bulk();
  g.sync();
  if (g.thread() < kMostDestinations) {
    SignalWord* signal = nullptr;
    if (g.thread() < to.count && is_direct(to.rank[g.thread()])) {
      ptx::bulk_store(links_.heap[to.rank[g.thread()]] + put.offset, put.source, put.bytes);
      signal = &word_at(to.rank[g.thread()], put.word);
    }
    signal_.commit(signal, put.value);
  }
}

// From the send buffer, a warp for each remote rank. I5, I7: the signal comes behind this put's own data, which is all
// the order that is needed.
__device__ inline void NvshmemFabric::put_to_remote(const SyncedTeam& g, const Destinations& to,
                                                    const SignalledPut& put) const {
  const int warp = g.thread() / 32;
  const int warps = g.size() / 32;
  int remote = 0;
  for (int i = 0; i < to.count; ++i) {
    if (is_direct(to.rank[i])) continue;
    if (warps - 1 - remote++ % warps == warp)  // from the last warp on: the first one has the bulk copies
      nvshmemx_putmem_signal_nbi_warp(local(put.offset), put.source, put.bytes, signal_at(put.word), put.value,
                                      NVSHMEM_SIGNAL_SET, to.rank[i]);
  }
}

__device__ inline void NvshmemFabric::put_then_signal_each(const SyncedTeam& g, const Destinations& to,
                                                           const SignalledPut& put) {
  bool any_remote = false;
  for (int i = 0; i < to.count; ++i) any_remote = any_remote || !is_direct(to.rank[i]);
  const bool in_buffer = __isShared(put.source) != 0;
#if __CUDA_ARCH__ >= 900
  if (in_buffer && !stores_messages_)
    put_to_direct(g, to, put);
  else
    store_then_signal_each(g, to, put);
#else
  store_then_signal_each(g, to, put);
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
