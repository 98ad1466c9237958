// RoundTag: a word that says itself which round it belongs to. A receiver that knows the word from its tag waits for no
// signal, and the sender need not put one behind it (I19).
#pragma once

#include <cstdint>

#include "ferry/portable.h"
#include "shared/order.h"

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

 private:
  int shift_ = 30;
};

// A count beside the whole number of its round, in a word that only grows, so it is waited for like a signal; and as it
// shows only itself, nothing is put behind it. For words that are not written in every round.
struct CountOfRound {
  static constexpr int kCountBits = 30;  // RoundTag::kLargestValue

  FERRY_HD static constexpr Epoch mark(std::uint32_t count, Epoch epoch) { return least(epoch) | count; }
  FERRY_HD static constexpr Epoch least(Epoch epoch) { return epoch << kCountBits; }
  FERRY_HD static constexpr std::uint32_t count(Epoch word) {
    return static_cast<std::uint32_t>(word) & RoundTag::kLargestValue;
  }
};

// What a word with a tag held when it was of the round.
struct TaggedValue {
  bool is_there = false;
  std::uint32_t value = 0;
};

}  // namespace ferry::cuda
