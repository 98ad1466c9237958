// RoundTag: a word that carries its round. A receiver that finds the tag of the round in the word needs no signal, and
// the sender sends none (I19).
#pragma once

#include <cstdint>

#include "ferry/detail/base/order.h"
#include "ferry/formats/portable.h"
#include "ferry/shape.h"

namespace ferry::cuda {

// The low bits have the value; the bits above have as many low bits of the epoch as fit. A word is written in every
// round of its parity. So before epoch e it holds 0 or the tag of e - 2, and two bits of tag suffice.
class RoundTag {
 public:
  static constexpr std::uint32_t kLargestValue = (1u << 30) - 1;
  static constexpr std::uint32_t kMostTokens = kLargestValue - 1;  // the value above says that they are too many

  RoundTag() = default;
  // For values up to `largest`, at most kLargestValue.
  FERRY_HD explicit RoundTag(std::uint32_t largest) : shift_(0) {
    while (largest >> shift_ != 0) ++shift_;
  }

  FERRY_HD std::uint32_t mark(std::uint32_t value, Epoch epoch) const {
    return value | static_cast<std::uint32_t>(epoch) << shift_;
  }
  FERRY_HD bool is_of(std::uint32_t word, Epoch epoch) const { return (word ^ mark(0, epoch)) >> shift_ == 0; }
  FERRY_HD std::uint32_t value(std::uint32_t word) const { return word & ((1u << shift_) - 1u); }

  // For words that are not written in every round: 64 bits, with the whole epoch above the value. Such a word only
  // grows, so a wait compares with >=. It acquires nothing either.
  FERRY_HD Epoch mark_whole(std::uint32_t value, Epoch epoch) const { return epoch << shift_ | value; }
  FERRY_HD bool has_come(Epoch word, Epoch epoch) const { return word >= mark_whole(0, epoch); }
  FERRY_HD std::uint32_t value_of_whole(Epoch word) const { return value(static_cast<std::uint32_t>(word)); }
  FERRY_HD Epoch epoch_of_whole(Epoch word) const { return word >> shift_; }

 private:
  int shift_ = 30;
};

// I19: the number of tokens that a rank says which has more than a dispatch can take, in the word that all ranks look
// at.
FERRY_HD constexpr std::uint32_t excess_mark(const Shape& shape) {
  return static_cast<std::uint32_t>(shape.max_tokens) + 1;
}

// The value of a tagged word of the awaited round.
struct TaggedValue {
  bool is_there = false;
  std::uint32_t value = 0;
};

}  // namespace ferry::cuda
