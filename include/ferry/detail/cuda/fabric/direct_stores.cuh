// DirectStores: what fabrics have in common whose kernels can store to other ranks' memory: a team's buffer in shared
// memory, which messages leave by bulk copies or by stores, the signals owed for these, and how one thread waits.
#pragma once

#include <cstddef>

#include "ferry/detail/base/copy.h"
#include "ferry/detail/cuda/fabric/bulk_signal.cuh"
#include "ferry/detail/cuda/fabric/compiled_hooks.cuh"
#include "ferry/detail/cuda/fabric/device_waits.cuh"
#include "ferry/detail/cuda/fabric/team_waits.cuh"
#include "ferry/detail/cuda/kernels/device_state.h"
#include "ferry/detail/cuda/team/ptx.cuh"
#include "ferry/detail/cuda/team/team_group.cuh"

namespace ferry::cuda {

inline constexpr int kMostDestinations = kMaxTopK + 1;  // of a message: the ranks of its experts, and the own one

// Self is a Fabric, and has put_then_signal_each.
template <class Self, class Signal>
class DirectStores : public TeamWaits<Self, Signal> {
 public:
  using Group = SyncedTeam;
  using Hooks = CompiledHooks<NoHooks>;

  // Before any put: the buffers of this block's teams, in shared memory. Each begins at a line, as message slots
  // do: a bulk copy whose two sides lie alike in their lines sends whole lines.
  __device__ void use_buffers(std::byte* buffers, const SyncedTeam& team) {
    buffer_ = buffers + static_cast<std::size_t>(team.team()) * buffer_bytes_;
  }

  __device__ Hooks hooks() const { return Hooks(links_.hooks); }
  __device__ const PeerLinks& links() const { return links_; }
  __device__ std::byte* local(std::size_t offset) const { return links_.own + offset; }
  // From now on near ranks are stored to without a buffer: sooner there where little is sent.
  __device__ void reach_directly() { stores_to_peers_ = true; }
  // From now on messages leave by stores: sooner there, but a team waits for them.
  __device__ void store_messages() { stores_messages_ = true; }

  __device__ void put_then_signal(const SyncedTeam& g, int peer, const SignalledPut& put) {
    static_cast<Self&>(*this).put_then_signal_each(g, {&peer, 1}, put);
  }

  __device__ std::byte* staging(const SyncedTeam& g, std::byte*) { return next_staging(g); }
  // The buffer, once what it held was read.
  __device__ std::byte* next_staging(const SyncedTeam& g) {
    if (g.thread() < kMostDestinations) ptx::bulk_wait_read<0>();
    g.sync();
    return buffer_;
  }

  // Every message to a near rank has left and is signalled. Also what an aborting block does before it exits.
  __device__ void finish_puts(const SyncedTeam& g) {
    if (g.thread() < kMostDestinations) signal_.finish();
    g.sync();
  }

  // I2: waits for a part of this rank's own table.
  __device__ static bool await_own_part(const PeerLinks& links, const Plan& plan, int part, Epoch epoch) {
    const auto& word = *reinterpret_cast<const SignalWord*>(links.own + plan.map.routed(links.rank, part));
    return DeviceWaits<Signal>::wait(links, word, epoch, own_site(links));
  }
  // I19. For one thread, which waits for counts of other blocks of this rank's own: until look(); seen() is the newest
  // round of one that is missing.
  template <class Look, class Seen>
  __device__ static bool wait_for_counts(const PeerLinks& links, const Look& look, const Seen& seen, Epoch epoch) {
    return DeviceWaits<Signal>::wait_for_counts(links, look, seen, epoch, own_site(links));
  }
  // For one thread, which waits for another block of this rank's own.
  __device__ bool wait_for_block(const DeviceWord<Epoch>& word, Epoch target) {
    return wait_on(word, target, own_site(links_));
  }

 protected:
  // Of `words` that follow each other, for each peer that is not skipped: a thread each.
  template <class Signals>
  __device__ static void for_each_signal(const SyncedTeam& g, int ranks, std::size_t word, const std::uint8_t* skipped,
                                         int words, const Signals& signal) {
    for (int i = g.thread(); i < words * ranks; i += g.size()) {
      const int number = words == 1 ? 0 : i / ranks;
      const int peer = i - number * ranks;
      if (skipped == nullptr || skipped[peer] == 0)
        signal(peer, word + static_cast<std::size_t>(number) * sizeof(SignalWord));
    }
  }
  // To near ranks, by stores of all threads, each of 16 bytes to one rank after the other; `bytes` is a multiple of 16.
  // I5: the barrier and a thread's release for each rank put them before the signal.
  __device__ void store_then_signal_each(const SyncedTeam& g, const Destinations& to, const SignalledPut& put) const {
    const Self& self = static_cast<const Self&>(*this);
    const auto* source = put.source;
    g.sync();
    for (std::size_t at = sizeof(Bytes16) * static_cast<std::size_t>(g.thread()); at < put.bytes;
         at += sizeof(Bytes16) * static_cast<std::size_t>(g.size())) {
      const Bytes16 piece = *reinterpret_cast<const Bytes16*>(source + at);
#pragma unroll 4
      for (int i = 0; i < to.count; ++i)
        if (self.is_direct(to.rank[i])) *reinterpret_cast<Bytes16*>(links_.heap[to.rank[i]] + put.offset + at) = piece;
    }
    g.sync();
    if (g.thread() < to.count && self.is_direct(to.rank[g.thread()]))
      store_release(word_at(to.rank[g.thread()], put.word), put.value);
  }

  __device__ DirectStores(const PeerLinks& links, std::size_t buffer_bytes)
      : links_(links), buffer_bytes_(HeapMap::whole_lines(buffer_bytes)) {}
  // What a block waits for that waits for others of its own rank.
  __device__ static WaitSite own_site(const PeerLinks& links) {
    return {Operation::dispatch, Phase::routing, links.rank, -1};
  }
  __device__ bool goes_directly(int direct_peer) const { return direct_peer == links_.rank || stores_to_peers_; }
  __device__ SignalWord& word_at(int peer, std::size_t word) const {
    return *reinterpret_cast<SignalWord*>(links_.heap[peer] + word);
  }
  template <Scope S>
  __device__ bool wait_on(const Shared<Epoch, S>& watched, Epoch target, const WaitSite& site) const {
    return DeviceWaits<Signal>::wait(links_, watched, target, site);
  }

  const PeerLinks& links_;
  bool stores_to_peers_ = false;
  bool stores_messages_ = false;
  std::byte* buffer_ = nullptr;
  std::size_t buffer_bytes_;
  BulkSignal signal_;  // of this thread's own copies
};

}  // namespace ferry::cuda
