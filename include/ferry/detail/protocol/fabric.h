// Fabric: how one rank reaches the memory of another, and how it waits for its own. The protocol sees nothing else of
// the wire. Offsets are into the symmetric memory (ferry/detail/layout/heap_map.h), the same on all ranks.
//
//   C1  put: the bytes are seen at the peer late and in any order. The source may be read until the receiver has shown,
//       by a `consumed` word or a newer epoch, that it has them (I15).
//   C2  signal_after_puts: the word is seen only after every earlier put, and every store through peer_pointer, of the
//       same group to that peer.
//   C3  put_then_signal: the word is seen only after this put; it promises nothing about other puts.
//   C4  signal_without_order: the word is seen some time; it promises nothing about puts.
//   C5  peer_pointer: where a peer's memory can be stored to directly, else null; for this rank itself never null.
//       Where there is one, a put has read its source when it returns.
//   C6  wait_at_least: how the protocol waits, on a word of this rank's memory. True: what the signal follows is
//       visible. False: the deadline passed or a rank aborted; every later wait of this exchange is false too.
//   C7  Signals to one word, and the puts that put_then_signal binds to them, take effect in the order of the calls.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "ferry/detail/base/order.h"
#include "ferry/error.h"
#include "ferry/thread_group.h"

namespace ferry {

// What a wait is for: goes into the record when it fails, and into the statistics by peer.
struct WaitSite {
  Operation operation;
  Phase phase;
  int peer;
  int token;  // -1: not about one token
};

namespace detail {
// Which threads a fabric's calls take: F::Group, else one thread.
template <class F>
struct GroupOf {
  using type = SerialGroup;
};
template <class F>
requires requires { typename F::Group; }
struct GroupOf<F> {
  using type = typename F::Group;
};
}  // namespace detail

template <class F>
concept Fabric = requires(F& f, const F& c, const typename detail::GroupOf<F>::type& g, std::size_t offset,
                          const void* source, WaitSite site) {
  { c.rank() } -> std::same_as<int>;
  { c.size() } -> std::same_as<int>;
  { c.local(offset) } -> std::same_as<std::byte*>;
  { c.peer_pointer(int{}, offset) } -> std::same_as<std::byte*>;
  f.put(g, int{}, offset, source, std::size_t{});
  f.put_then_signal(g, int{}, offset, source, std::size_t{}, offset, Epoch{});
  f.signal_after_puts(g, int{}, offset, Epoch{});
  f.signal_without_order(g, int{}, offset, Epoch{});
  { f.wait_at_least(g, offset, Epoch{}, site) } -> std::same_as<bool>;
};

// What a fabric may do better than one call at a time. Each helper falls back on the calls above.

// Where the next message or result is made. A fabric with buffers of its own (`next_staging`) keeps several on their
// way.
template <Fabric F, class G>
FERRY_HD std::byte* staging_for(F& fabric, const G& g, std::byte* given) {
  if constexpr (requires { fabric.next_staging(g); })
    return fabric.next_staging(g);
  else
    return given;
}

// put_then_signal to each of `peers`, beginning with any.
template <Fabric F, class G>
FERRY_HD void put_then_signal_each(F& fabric, const G& g, const int* peers, int count, int start, std::size_t offset,
                                   const void* source, std::size_t bytes, std::size_t word, Epoch value) {
  if constexpr (requires { fabric.put_then_signal_each(g, peers, count, offset, source, bytes, word, value); }) {
    fabric.put_then_signal_each(g, peers, count, offset, source, bytes, word, value);
  } else {
    for (int i = 0; i < count; ++i)
      fabric.put_then_signal(g, peers[(i + start) % count], offset, source, bytes, word, value);
  }
}

// signal_after_puts to each rank that is not skipped.
template <Fabric F, class G>
FERRY_HD void signal_each_after_puts(F& fabric, const G& g, int ranks, std::size_t word, Epoch value,
                                     const std::uint8_t* skipped) {
  if constexpr (requires { fabric.signal_each_after_puts(g, ranks, word, value, skipped); }) {
    fabric.signal_each_after_puts(g, ranks, word, value, skipped);
  } else {
    for (int peer = 0; peer < ranks; ++peer)
      if (skipped == nullptr || skipped[peer] == 0) fabric.signal_after_puts(g, peer, word, value);
  }
}

// Waits for word(i) >= target for each i that is not skipped; a fabric of many threads waits for all at once.
template <Fabric F, class G, class WordOf, class SiteOf>
FERRY_HD bool wait_for_each(F& fabric, const G& g, int count, const WordOf& word, Epoch target, const SiteOf& site,
                            const std::uint8_t* skipped = nullptr) {
  if constexpr (requires { fabric.wait_for_each(g, count, word, target, site, skipped); }) {
    return fabric.wait_for_each(g, count, word, target, site, skipped);
  } else {
    for (int i = 0; i < count; ++i)
      if ((skipped == nullptr || skipped[i] == 0) && !fabric.wait_at_least(g, word(i), target, site(i))) return false;
    return true;
  }
}

// I15: where a message that may go to ranks without a pointer is made: in a buffer of the fabric, which then copies it
// to the send buffer where it has to, or else in the send buffer itself.
template <Fabric F, class G>
FERRY_HD std::byte* staging_or_send_buffer(F& fabric, const G& g, std::size_t send_buffer) {
  if constexpr (requires { fabric.next_staging(g); })
    return fabric.next_staging(g);
  else
    return fabric.local(send_buffer);
}

// All that this group put is on its way, and its signals will follow without further calls.
template <Fabric F, class G>
FERRY_HD void finish_puts(F& fabric, const G& g) {
  if constexpr (requires { fabric.finish_puts(g); }) fabric.finish_puts(g);
}

// All that this group put has landed: what I8 asks for where nothing else waits for it.
template <Fabric F, class G>
FERRY_HD void complete_puts(F& fabric, const G& g) {
  if constexpr (requires { fabric.complete_puts(g); }) fabric.complete_puts(g);
}

}  // namespace ferry
