// DeviceFabric: the calls of a fabric that only kernels make. Fabric (ferry/detail/protocol/contracts/fabric.h) has the
// calls of all backends; offsets and the clauses C2, C3, C5 and C6 mean the same. A rank is direct if its memory is
// mapped here and kernels store to it, otherwise remote. One object serves one thread; all threads of a team make the
// same calls.
//
//   D1  local, peer_pointer: as C5. For other ranks peer_pointer is null until make_in_place, even if they are direct:
//       a result is then made in the team's buffer, and travels while the next one is made.
//   D2  staging: waits until the team's buffer in shared memory has been read, and returns it. use_buffers comes first.
//   D3  put_then_signal, put_then_signal_each: C3. The source is the team's buffer, the bytes are a multiple of 16. The
//       signal may come with a later call of the same team, with finish_puts at the latest (I12).
//   D4  store: one thread stores a routing entry. A receiver sees it after the next signal_each_after_puts of the
//       team (I2).
//       store_word: one thread stores one word. It orders nothing, which is enough for a word with a tag (I19).
//   D5  signal_after_puts, signal_each_after_puts: C2, for the stores and puts of all threads of the team. The latter
//       sets `words` consecutive words at each rank that is not skipped.
//   D6  fence_puts: what threads of the team put to the peer arrives before what they put and signal from now on (C2).
//       complete_puts: no put of this team is in flight after it. I8 needs it where the host may give up a round.
//   D7  Every wait is as C6 and names the rank that it waits for. waits() has the waits that only kernels make.
//   D8  A fabric keeps a reference to the kernel's parameter, no copy. The fabric itself lives in registers.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "ferry/detail/cuda/state/device_state.h"
#include "ferry/detail/cuda/state/round_tag.h"
#include "ferry/detail/layout/routing.h"
#include "ferry/detail/protocol/contracts/fabric.h"

namespace ferry::cuda {

// Reach: which ranks are direct, and the calls of one thread that differ between direct and remote ranks. Where some
// are remote, Reach::Puts is the transport (RemotePuts). Kernels that send no messages need no more of a fabric.
template <class R>
concept RankReach = requires(const R& reach, const PeerLinks& links, int peer, std::size_t word, Epoch value) {
  R(links);
  { R::kHasRemoteRanks } -> std::convertible_to<bool>;
  { reach.is_direct(peer) } -> std::same_as<bool>;
  { reach.heap_of(peer) } -> std::same_as<std::byte*>;  // of a direct rank; null: a remote one
  reach.signal(peer, word, value);  // C4; at a direct rank what this thread stored before comes before it
  reach.signal_without_order(peer, word, value);
  reach.see_puts_of(peer, word, value);  // C6: the word has its value; makes visible what `peer` put before it
};

// `G`: the threads of a team; one thread makes the other calls. there() is true when the wait may end. seen() is the
// round that the record names if it never ends.
template <class W, class G>
concept DeviceWaits = requires(W& w, const W& c, const G& g, const PeerLinks& links, const Plan& plan, Epoch epoch,
                               std::size_t offset, std::size_t (*word)(int), const WaitSite& site,
                               const DeviceWord<Epoch>& count, bool (*there)(), Epoch (*seen)()) {
  W(links);
  // Whether a wait for each word would end at once. It waits for nothing and acquires nothing.
  { c.are_there(g, int{}, word, epoch) } -> std::same_as<bool>;
  { c.wait_for_tag(offset, epoch, offset, site, bool{}) } -> std::same_as<TaggedValue>;  // I19
  { c.wait_for_counts(there, seen, epoch) } -> std::same_as<bool>;                       // I19
  { c.wait_for_block(count, epoch) } -> std::same_as<bool>;
  { c.wait_for_own_part(plan, int{}, epoch) } -> std::same_as<bool>;  // I2: a part of this rank's own table
};

// `F::Group`: the threads of a team. `F::WarpGroup`: the threads of a team whose warps wait on their own.
template <class F>
concept DeviceFabric = Fabric<F> && RankReach<typename F::Reach> && DeviceWaits<typename F::Waits, typename F::Group> &&
    DeviceWaits<typename F::Waits, typename F::WarpGroup> &&
    requires(F& f, const F& c, const typename F::Group& g, const typename F::WarpGroup& w, const PeerLinks& links,
             const Plan& plan, std::size_t offset, std::byte* buffers, const SignalledPut& put,
             const RoutingEntry& entry, const std::uint8_t* skipped, std::size_t (*word)(int), WaitSite (*site_of)(int),
             WaitSite site, const TokenAt& at) {
  // capabilities
  { F::kHasRemoteRanks } -> std::convertible_to<bool>;       // false: all ranks are direct
  { F::kName } -> std::convertible_to<const char*>;          // of the transport; "direct" without one
  typename F::template WithHooks<typename F::Hooks::Given>;  // the same fabric with other hooks
  // address
  F(links, plan, std::size_t{});  // bytes of a team's buffer
  { c.links() } -> std::same_as<const PeerLinks&>;
  { c.peer_pointer(int{}, offset) } -> std::same_as<std::byte*>;
  f.make_in_place();
  // send
  f.use_buffers(buffers, g);
  f.store_messages();  // from now on messages leave by stores: they arrive sooner, but the team waits
  f.put_then_signal(g, int{}, put);
  f.signal_after_puts(g, int{}, offset, Epoch{});
  f.signal_each_after_puts(g, int{}, offset, Epoch{}, skipped, int{});
  f.store(int{}, offset, entry);
  f.store_word(int{}, offset, std::uint32_t{});
  f.fence_puts(g, int{});
  f.complete_puts(g);
  // wait
  { f.wait_at_least(w, offset, Epoch{}, site) } -> std::same_as<bool>;
  { f.wait_for_each(w, int{}, word, Epoch{}, site_of, skipped) } -> std::same_as<bool>;
  { f.await_entries(w, plan, Epoch{}, Epoch{}, at, int{}) } -> std::same_as<bool>;
  { c.waits() } -> std::same_as<const typename F::Waits&>;
};

}  // namespace ferry::cuda
