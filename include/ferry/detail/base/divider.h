// Divider: division by a number that is known beforehand, by a multiplication. An integer division takes some 20
// instructions in a kernel.
#pragma once

#include <cstdint>

#include "ferry/formats/portable.h"

namespace ferry {

// Exact for 0 <= value < 2^31 and 1 <= divisor < 2^31: multiplier = 2^32 * (2^shift - divisor) / divisor + 1, with
// 2^shift >= divisor.
class Divider {
 public:
  constexpr Divider() = default;
  explicit constexpr Divider(int divisor) : divisor_(divisor) {
    const auto wide = static_cast<std::uint64_t>(divisor);
    while ((std::uint64_t{1} << shift_) < wide) ++shift_;
    multiplier_ = static_cast<std::uint32_t>((((std::uint64_t{1} << shift_) - wide) << 32) / wide + 1);
  }

  FERRY_HD constexpr int quotient(int value) const {
    const auto whole = static_cast<std::uint32_t>(value);
    const auto high = static_cast<std::uint32_t>((static_cast<std::uint64_t>(multiplier_) * whole) >> 32);
    return static_cast<int>((high + whole) >> shift_);
  }
  FERRY_HD constexpr int remainder(int value) const { return value - quotient(value) * divisor_; }
  FERRY_HD constexpr int divisor() const { return divisor_; }

 private:
  int divisor_ = 1;
  std::uint32_t multiplier_ = 1;
  int shift_ = 0;
};

}  // namespace ferry
