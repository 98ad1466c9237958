// RoundState: which call a round allows next, and the epochs. Independent of how tokens travel.
#pragma once

#include <string>

#include "ferry/detail/base/order.h"
#include "ferry/detail/protocol/dispatch.h"
#include "ferry/error.h"

namespace ferry {

enum class Stage : std::uint8_t {
  closed,     // no round is open
  sent,       // dispatch_async was called
  open,       // the rows are laid out
  returning,  // combine_async was called
  broken,     // a rank is missing: every call is refused
};

struct RoundState {
  Stage stage = Stage::closed;
  Epoch dispatched = kFirstEpoch - 1;  // the newest round that was sent
  Epoch combined = kFirstEpoch - 1;    // the newest round whose buffers this rank has given back
  WaitRecord broken_by;

  // Throw where the round does not allow the call now.
  void require_not_broken() const;
  void require_can_dispatch(int rank, const char* call) const;
  void require_stage(int rank, const char* call, Stage wanted, const char* before) const;
};

// One sentence: who waited for whom, in which phase, and what to do.
std::string describe(const WaitRecord& record);

}  // namespace ferry
