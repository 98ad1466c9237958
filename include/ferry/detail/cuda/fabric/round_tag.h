// RoundTag: a word that says itself which round it belongs to. A receiver that knows the word from its tag waits for no
// signal, and the sender need not put one behind it (I19).
#pragma once

#include <cstdint>

#include "ferry/detail/base/order.h"
#include "ferry/portable.h"

namespace ferry::cuda {

// The value is in the low bits, those of the epoch that have room are above it. A word is written in every round of its
// parity, so before epoch e it holds 0 or e - 2: two bits tell.
class RoundTag {
 public:
  static constexpr std::uint32_t kLargestValue = (1u << 30) - 1;

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

  // For a word that is not written in every round: one of 64 bits, with the number of the round above the value. It
  // only grows, so it is waited for with >=, and it still shows only itself.
  FERRY_HD Epoch mark_whole(std::uint32_t value, Epoch epoch) const { return epoch << shift_ | value; }
  FERRY_HD bool has_come(Epoch word, Epoch epoch) const { return word >= mark_whole(0, epoch); }
  FERRY_HD std::uint32_t value_of_whole(Epoch word) const { return value(static_cast<std::uint32_t>(word)); }
  FERRY_HD Epoch epoch_of_whole(Epoch word) const { return word >> shift_; }

 private:
  int shift_ = 30;
};

// What a word with a tag held when it was of the round.
struct TaggedValue {
  bool is_there = false;
  std::uint32_t value = 0;
};

}  // namespace ferry::cuda
