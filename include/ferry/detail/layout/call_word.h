// Call words: what a rank tells all others when it begins a told call (I22), one that is given a handle or a combine
// that chooses its reduction: number of the call << 16 | mark of its routing. Waits compare the numbers. A rank whose
// wait lasts, or has ended, compares the mark with its own (I22).
#pragma once

#include <cstdint>

#include "ferry/detail/base/order.h"
#include "ferry/detail/layout/handle_header.h"
#include "ferry/formats/portable.h"

namespace ferry {

inline constexpr std::uint32_t kMarkOfHandle = 1u;
// The mark of a routing: 16 bits that tell it from routings of other calls. `replays`: the routing comes from a handle
// that the call was given, and has the number of its exchange. A call without a handle has another mark. A word carries
// it where combines choose their reduction; other calls without a handle write no word.
FERRY_HD constexpr std::uint32_t routing_mark(Epoch routing, bool replays) {
  constexpr std::uint32_t kApart = 0x6A09;  // odd: exchanges whose numbers are near are far apart
  const auto exchange = static_cast<std::uint32_t>(routing >> kBitsOfRouting);
  return ((static_cast<std::uint32_t>(routing) + exchange * kApart) << 1 | (replays ? kMarkOfHandle : 0u)) & 0xFFFFu;
}
// Changes the mark of a dispatch with a handle: ranks that take different formats are told apart, too.
constexpr std::uint32_t mark_of_format(int format) { return static_cast<std::uint32_t>(format) << 12; }
// The same for a combine that is exact, on an exchange whose combines choose.
inline constexpr std::uint32_t kMarkOfExact = 0x8000u;
FERRY_HD constexpr Epoch call_word(Epoch number, std::uint32_t mark) { return number << 16 | mark; }
FERRY_HD constexpr Epoch number_of_call(Epoch word) { return word >> 16; }
// Whether the word is of the same call, but of another routing.
FERRY_HD constexpr bool is_of_other_routing(Epoch word, Epoch mine) {
  return number_of_call(word) == number_of_call(mine) && word != mine;
}

}  // namespace ferry
