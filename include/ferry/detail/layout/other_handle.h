// OtherHandle: a rank of GPUs gave its call a handle of another dispatch than this rank gave, or another reduction
// (I22). Each says in call words (call_word.h) what it gave, and an abort word with kOtherRouting names the other rank.
// In place of an epoch that word says:
//
//   bits      of abort_word's epoch
//   32        1: a dispatch, 0: a combine
//   16 to 31  the mark of the rank that it names
//   0 to 15   the mark of the rank that wrote it
#pragma once

#include <cstdint>

#include "ferry/detail/layout/call_word.h"
#include "ferry/error.h"
#include "ferry/formats/portable.h"

namespace ferry {

struct OtherHandle {
  int rank = -1;  // that gave it; -1: all gave the same, as far as this rank knows
  Operation operation = Operation::none;
  std::uint32_t mark = 0;  // of its routing
  std::uint32_t mine = 0;

  FERRY_HD constexpr bool was_given() const { return rank >= 0; }
  FERRY_HD constexpr Epoch bits() const {
    return Epoch{operation == Operation::dispatch ? 1u : 0u} << 32 | Epoch{mark} << 16 | mine;
  }
  static constexpr OtherHandle of(Epoch bits, int rank) {
    return {rank, (bits >> 32 & 1) != 0 ? Operation::dispatch : Operation::combine,
            static_cast<std::uint32_t>(bits >> 16 & 0xFFFFu), static_cast<std::uint32_t>(bits & 0xFFFFu)};
  }
};
// WaitRecord::epoch_seen, where epoch_wanted is OtherHandle::bits().
inline constexpr Epoch kSeenAnotherHandle = ~Epoch{0};

// What a rank said of its newest told dispatch and of its newest told combine. 0: it had none.
struct CallWords {
  Epoch dispatching = 0;
  Epoch combining = 0;
};
FERRY_HD constexpr OtherHandle compare_call(Operation operation, int rank, Epoch theirs, Epoch mine) {
  if (!is_of_other_routing(theirs, mine)) return {};
  return {rank, operation, static_cast<std::uint32_t>(theirs & 0xFFFFu), static_cast<std::uint32_t>(mine & 0xFFFFu)};
}
// What `rank` said, against what this one said.
FERRY_HD constexpr OtherHandle compare_calls(int rank, const CallWords& theirs, const CallWords& mine) {
  const OtherHandle other = compare_call(Operation::dispatch, rank, theirs.dispatching, mine.dispatching);
  return other.was_given() ? other : compare_call(Operation::combine, rank, theirs.combining, mine.combining);
}

}  // namespace ferry
