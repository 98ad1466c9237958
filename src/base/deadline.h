// The longest deadline that a wait may have, and the time for abort words after one has passed.
#pragma once

#include <algorithm>
#include <chrono>

namespace ferry {

// Longer deadlines overflow some clocks.
inline constexpr std::chrono::milliseconds kMaxDeadline{std::chrono::hours(24)};

// How long a rank gives the others to say whom they waited for, after its own deadline (I10).
inline std::chrono::milliseconds moment_for_words(std::chrono::milliseconds deadline) {
  using std::chrono::milliseconds;
  return std::clamp(deadline / 2, milliseconds(50), milliseconds(500));
}

}  // namespace ferry
