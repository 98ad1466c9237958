// Call words: what a rank tells all others when it begins a call: number of the call << 16 | low bits that name its
// routing. Waits compare numbers; whoever has waited long compares the low bits with its own.
#pragma once

#include <cstdint>

#include "ferry/detail/base/order.h"
#include "ferry/portable.h"

namespace ferry {

// `replays`: the call was given a handle, whose routing it is.
FERRY_HD constexpr std::uint32_t routing_mark(Epoch routing, bool replays) {
  return (static_cast<std::uint32_t>(routing) << 1 | (replays ? 1u : 0u)) & 0xFFFFu;
}
FERRY_HD constexpr Epoch call_word(Epoch number, std::uint32_t mark) { return number << 16 | mark; }
FERRY_HD constexpr Epoch number_of_call(Epoch word) { return word >> 16; }
// Whether the word is of the same call, but of another routing.
FERRY_HD constexpr bool is_of_other_routing(Epoch word, Epoch mine) {
  return number_of_call(word) == number_of_call(mine) && word != mine;
}

}  // namespace ferry
