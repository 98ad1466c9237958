// DeviceFabric: what kernels call of a fabric, beyond what all backends call (Fabric, ferry/detail/protocol/fabric.h).
// Offsets and the clauses C2, C3, C5 and C6 mean the same as there. A rank is direct where its memory is mapped here
// and a kernel stores to it, else remote. One object serves one thread; the threads of a team make the same calls.
//
//   D1  local, peer_pointer: as C5. For other ranks peer_pointer is null until make_in_place, also where they are
//   direct:
//       a result that is made in the team's buffer travels while the next one is made.
//   D2  staging: the team's buffer in shared memory, when what it held before was read. use_buffers comes first.
//   D3  put_then_signal, put_then_signal_each: C3. The source is the team's buffer, the bytes are a multiple of 16. The
//       signal may come with a later call of the same team, with finish_puts at the latest (I12).
//   D4  store: a routing entry, by one thread. A receiver sees it behind the next signal_each_after_puts of the team
//   (I2).
//       store_word: one word, by one thread. It shows only itself, which is enough for a word with a tag (I19).
//   D5  signal_after_puts, signal_each_after_puts: C2, for the stores and puts of all threads of the team. The latter
//       sets `words` words that follow each other at each rank that is not skipped.
//   D6  complete_puts: nothing of this team is on its way after it. I8 asks for it where the host may give up a round.
//   D7  Every wait is C6, and names the rank it waits for. waits() has what is waited for in kernels only.
//   D8  A fabric is made from a kernel's parameter, which it refers to and does not copy. It lives in registers.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "ferry/detail/cuda/fabric/round_tag.h"
#include "ferry/detail/cuda/kernels/device_state.h"
#include "ferry/detail/layout/routing.h"
#include "ferry/detail/protocol/fabric.h"

namespace ferry::cuda {

// `G`: the threads of a team; the other calls are one thread's. `there()` says whether to stop waiting, and `seen()`
// which round the record names where that never comes.
template <class W, class G>
concept DeviceWaits = requires(W& w, const W& c, const G& g, const PeerLinks& links, const Plan& plan, Epoch epoch,
                               std::size_t offset, std::size_t (*word)(int), const WaitSite& site,
                               const DeviceWord<Epoch>& count, bool (*there)(), Epoch (*seen)()) {
  W(links);
  // Whether waiting for each word would end at once. Waits for nothing, and shows nothing of what came before the
  // words.
  { c.are_there(g, int{}, word, epoch) } -> std::same_as<bool>;
  { c.wait_for_tag(offset, epoch, offset, site, bool{}) } -> std::same_as<TaggedValue>;  // I19
  { c.wait_for_counts(there, seen, epoch) } -> std::same_as<bool>;                       // I19
  { c.wait_for_block(count, epoch) } -> std::same_as<bool>;
  { c.wait_for_own_part(plan, int{}, epoch) } -> std::same_as<bool>;  // I2: of this rank's own table
};

// `F::Group`: the threads of a team. `F::WarpGroup`: those of a team whose warps wait each for itself.
template <class F>
concept DeviceFabric = Fabric<F> && DeviceWaits<typename F::Waits, typename F::Group> &&
    DeviceWaits<typename F::Waits, typename F::WarpGroup> &&
    requires(F& f, const F& c, const typename F::Group& g, const typename F::WarpGroup& w, const PeerLinks& links,
             const Plan& plan, std::size_t offset, std::byte* buffers, const SignalledPut& put,
             const RoutingEntry& entry, const std::uint8_t* skipped, std::size_t (*word)(int), WaitSite (*site_of)(int),
             WaitSite site, const TokenAt& at) {
  // capabilities
  { F::kHasRemoteRanks } -> std::convertible_to<bool>;       // else all ranks are direct
  typename F::template WithHooks<typename F::Hooks::Given>;  // the same fabric with other hooks
  // address
  F(links, plan, std::size_t{});  // bytes of a team's buffer
  { c.links() } -> std::same_as<const PeerLinks&>;
  { c.peer_pointer(int{}, offset) } -> std::same_as<std::byte*>;
  f.make_in_place();
  // send
  f.use_buffers(buffers, g);
  f.store_messages();  // from now on messages leave by stores: sooner there, but a team waits for them
  f.put_then_signal(g, int{}, put);
  f.signal_after_puts(g, int{}, offset, Epoch{});
  f.signal_each_after_puts(g, int{}, offset, Epoch{}, skipped, int{});
  f.store(int{}, offset, entry);
  f.store_word(int{}, offset, std::uint32_t{});
  f.complete_puts(g);
  // wait
  { f.wait_at_least(w, offset, Epoch{}, site) } -> std::same_as<bool>;
  { f.wait_for_each(w, int{}, word, Epoch{}, site_of, skipped) } -> std::same_as<bool>;
  { f.await_entries(w, plan, Epoch{}, at, int{}) } -> std::same_as<bool>;
  { c.waits() } -> std::same_as<const typename F::Waits&>;
};

}  // namespace ferry::cuda
