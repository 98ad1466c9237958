// Scale words: what a rank says of the input scale of a dispatch, where the format uses one: the low 32 bits of the
// dispatch's number << 32 | the bits of the scale. Ranks whose words of one dispatch differ have different scales
// (I26).
#pragma once

#include <cstdint>

#include "ferry/detail/base/order.h"
#include "ferry/formats/portable.h"

namespace ferry {

FERRY_HD constexpr Epoch scale_word(Epoch dispatch, float scale) {
  return dispatch << 32 | __builtin_bit_cast(std::uint32_t, scale);
}
FERRY_HD constexpr std::uint32_t dispatch_of_scale(Epoch word) { return static_cast<std::uint32_t>(word >> 32); }
FERRY_HD constexpr float scale_of(Epoch word) { return __builtin_bit_cast(float, static_cast<std::uint32_t>(word)); }
// Whether the two are of the same dispatch, and say different scales. A word that was never written is of none.
FERRY_HD constexpr bool is_of_other_scale(Epoch word, Epoch mine) {
  return word != mine && dispatch_of_scale(word) == dispatch_of_scale(mine) && dispatch_of_scale(mine) != 0;
}

// A rank whose dispatch of that number had another scale than this rank's.
struct OtherScale {
  int rank = -1;  // none
  std::uint32_t dispatch = 0;
  float theirs = 0;
  float mine = 0;

  FERRY_HD constexpr bool was_given() const { return rank >= 0; }
  FERRY_HD static constexpr OtherScale of(int rank, Epoch theirs, Epoch mine) {
    return {rank, dispatch_of_scale(mine), scale_of(theirs), scale_of(mine)};
  }
};

}  // namespace ferry
