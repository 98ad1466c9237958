// Fabric: how one rank reaches the memory of another, and how it waits for its own. The protocol sees nothing else of
// the wire. Offsets are into the symmetric memory (ferry/detail/layout/heap_map.h), the same on all ranks.
//
//   C1  put: the bytes are seen at the peer late and in any order. The source may be read until the receiver has shown,
//       by a `dispatching` or `summed` word, that it has them (I15).
//   C2  signal_after_puts: the word is seen only after every earlier put, and every store through peer_pointer, of the
//       same group to that peer.
//   C3  put_then_signal: the word is seen only after this put; it promises nothing about other puts.
//   C4  signal_without_order: the word is seen some time; it promises nothing about puts.
//   C5  peer_pointer: where a peer's memory can be stored to directly, else null; for this rank itself never null.
//       Where there is one, a put has read its source when it returns.
//   C6  wait_at_least: how the protocol waits, on a word of this rank's memory. True: what the signal follows is
//       visible. False: the deadline passed or a rank aborted; every later wait of this exchange is false too.
//   C7  Signals to one word, and the puts that put_then_signal binds to them, take effect in the order of the calls.
//
// Three concepts say who needs what. `Fabric` has what the steps call that all backends run. `SerialFabric` adds what
// the steps of CPU ranks call; `cuda::DeviceFabric` (ferry/detail/cuda/fabric/device_fabric.h) adds what kernels call.
// No member is optional: a fabric that lacks one does not compile.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "ferry/detail/base/order.h"
#include "ferry/detail/layout/abort_word.h"
#include "ferry/detail/protocol/contracts/hooks.h"
#include "ferry/error.h"
#include "ferry/formats/thread_group.h"

namespace ferry {

struct Plan;
struct TokenAt;

// What a wait is for. A failed wait records it, and the statistics count waiting time by peer.
struct WaitSite {
  Operation operation;
  Phase phase;
  int peer;
  int token;  // -1: not about one token
};

// The record of a wait of `my_rank` that failed. `word_of(rank)` is the abort word of each of the first `ranks` ranks.
// I10: if another rank ended the wait, the record names the rank that its abort word names, not the rank that wrote it.
// `ranks` is 0 if the deadline ended the wait.
template <class WordOf>
FERRY_HD WaitRecord failed_wait(const WaitSite& site, int my_rank, int ranks, Epoch seen, Epoch wanted,
                                const WordOf& word_of) {
  WaitRecord record{.operation = site.operation,
                    .phase = site.phase,
                    .my_rank = my_rank,
                    .missing_rank = site.peer,
                    .reported_by = my_rank,
                    .token = site.token,
                    .epoch_seen = seen,
                    .epoch_wanted = wanted};
  const FirstAbort first = first_abort(ranks, word_of);
  if (!first.nobody()) {
    record.missing_rank = first.waited_for;
    record.reported_by = first.reported_by;
  }
  return record;
}

// One put and the signal that follows it (C3).
struct SignalledPut {
  std::size_t offset;  // at the peer
  const std::byte* source;
  std::size_t bytes;
  std::size_t word;  // at the peer
  Epoch value;
};

// The ranks of one message. `start` is the index of the first to send to, so that not all senders begin with the same
// rank. A fabric whose threads send to all ranks at once needs no start.
struct Destinations {
  const int* rank;
  int count;
  int start = 0;
};

// `F::Group`: the threads that make a call together.
template <class F>
concept Fabric = HookPolicy<typename F::Hooks> &&
    requires(F& f, const F& c, const typename F::Group& g, std::size_t offset, std::byte* room, WaitSite site,
             const SignalledPut& put, const Destinations& to, std::size_t (*word)(int), WaitSite (*site_of)(int),
             const std::uint8_t* skipped, const Plan& plan, const TokenAt& at) {
  { c.hooks() } -> std::convertible_to<const typename F::Hooks&>;
  { c.local(offset) } -> std::same_as<std::byte*>;
  // Where the next message or result is made: a free buffer of the fabric, or `room` if the fabric has no buffers.
  { f.staging(g, room) } -> std::same_as<std::byte*>;
  f.put_then_signal_each(g, to, put);  // C3 to each
  f.finish_puts(g);                    // starts all puts of this group; their signals follow without further calls
  { f.wait_at_least(g, offset, Epoch{}, site) } -> std::same_as<bool>;
  // wait_at_least(word(i)) for each i that is not skipped (null: none is).
  { f.wait_for_each(g, int{}, word, Epoch{}, site_of, skipped) } -> std::same_as<bool>;
  // I2: waits for the part of a routing table that has this token's entries; the table has `num_tokens`. The second
  // number is that of the messages, for fabrics that look for this one on the way. After await_routing all parts have
  // arrived, and it returns at once.
  { f.await_entries(g, plan, Epoch{}, Epoch{}, at, int{}) } -> std::same_as<bool>;
};

template <class F>
concept SerialFabric = Fabric<F> && requires(F& f, const F& c, const typename F::Group& g, std::size_t offset,
                                             const void* source, const SignalledPut& put, const std::uint8_t* skipped) {
  { c.rank() } -> std::same_as<int>;
  { c.size() } -> std::same_as<int>;
  { c.peer_pointer(int{}, offset) } -> std::same_as<std::byte*>;
  f.put(g, int{}, offset, source, std::size_t{});
  f.put_then_signal(g, int{}, put);
  f.signal_after_puts(g, int{}, offset, Epoch{});
  f.signal_each_after_puts(g, int{}, offset, Epoch{}, skipped);  // to each rank that is not skipped
  f.signal_without_order(g, int{}, offset, Epoch{});
};

// Defaults of fabrics of CPU ranks: a group is one thread, hooks are function pointers, messages are made where the
// caller has room, puts start at once, and tables arrive whole.
struct SerialFabricDefaults {
  using Group = SerialGroup;
  using Hooks = PointerHooks;
  static constexpr bool kGivesBack = false;  // whether give_back() returns memory to the system for a while
  static PointerHooks hooks() { return {}; }
  static std::byte* staging(const SerialGroup&, std::byte* room) { return room; }
  static void finish_puts(const SerialGroup&) {}
  static bool await_entries(const SerialGroup&, const Plan&, Epoch, Epoch, const TokenAt&, int) { return true; }
};

// OneByOne: calls for many ranks as loops over the calls for one rank, which `Calls` has.
template <class Calls>
class OneByOne : public Calls {
 public:
  using Calls::Calls;

  template <class G>
  void put_then_signal_each(const G& g, const Destinations& to, const SignalledPut& put) {
    for (int i = 0; i < to.count; ++i) Calls::put_then_signal(g, to.rank[(i + to.start) % to.count], put);
  }
  template <class G>
  void signal_each_after_puts(const G& g, int ranks, std::size_t word, Epoch value, const std::uint8_t* skipped) {
    for (int peer = 0; peer < ranks; ++peer)
      if (skipped == nullptr || skipped[peer] == 0) Calls::signal_after_puts(g, peer, word, value);
  }
  template <class G, class WordOf, class SiteOf>
  bool wait_for_each(const G& g, int count, const WordOf& word, Epoch target, const SiteOf& site,
                     const std::uint8_t* skipped = nullptr) {
    for (int i = 0; i < count; ++i)
      if ((skipped == nullptr || skipped[i] == 0) && !Calls::wait_at_least(g, word(i), target, site(i))) return false;
    return true;
  }
};

}  // namespace ferry
