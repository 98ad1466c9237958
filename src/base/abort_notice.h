// AbortNotice: what a rank says when it aborts its world, and the error that it becomes at the others.
#pragma once

#include <cstddef>
#include <string>

#include "ferry/error.h"
#include "ferry/world.h"

namespace ferry {

// Bytes of a reason that reach other processes (World::abort).
inline constexpr std::size_t kMostReason = 240;

struct AbortNotice {
  int rank = -1;     // that aborted
  int missing = -1;  // for which it did: itself, or a rank that it missed
  std::string reason;
};

// The sentence for a rank that was told so; `operation` is what ended there.
std::string describe_abort(const WaitRecord& record, const std::string& reason);

// Throws Aborted at rank `my_rank`, in set-up call `call`. Names the missing rank, or, if the mask names that one, the
// rank that aborted.
[[noreturn]] void throw_aborted(int my_rank, const AbortNotice& notice, const RankMask& mask, std::uint64_t call);

}  // namespace ferry
