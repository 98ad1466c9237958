// Fabric: how one rank reaches the memory of another, and how it waits for its own. The protocol sees nothing else of
// the wire. Offsets are into the symmetric memory (shared/heap_map.h), the same on all ranks.
//
//   C1  put: the bytes are seen at the peer late and in any order. The source may be read until the receiver has shown,
//       by a `consumed` word or a newer epoch, that it has them.
//   C2  signal_after_puts: the word is seen only after every earlier put, and every store through peer_pointer, of the
//       same group to that peer.
//   C3  put_then_signal: the word is seen only after this put; it promises nothing about other puts.
//   C4  signal_without_order: the word is seen some time; it promises nothing about puts.
//   C5  peer_pointer: where a peer's memory can be stored to directly, else null. For this rank itself never null.
//   C6  wait_at_least: the only way to wait, on a word of this rank's memory. What the signal follows is visible after
//       true. False: the deadline passed or a rank aborted; every later wait of this exchange is false too.
//   C7  Signals to one word, and the puts that put_then_signal binds to them, take effect in the order of the calls.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "ferry/error.h"
#include "ferry/thread_group.h"
#include "shared/order.h"

namespace ferry {

// What a wait is for: goes into the record when it fails, and into the statistics by peer.
struct WaitSite {
  Operation operation;
  Phase phase;
  int peer;
  int token;  // -1: not about one token
};

template <class F>
concept Fabric = requires(F& f, const F& c, const SerialGroup& g, std::size_t offset, const void* source,
                          WaitSite site) {
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

}  // namespace ferry
