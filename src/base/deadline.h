// The longest deadline that a wait may have.
#pragma once

#include <chrono>

namespace ferry {

// Longer deadlines overflow some clocks.
inline constexpr std::chrono::milliseconds kMaxDeadline{std::chrono::hours(24)};

}  // namespace ferry
