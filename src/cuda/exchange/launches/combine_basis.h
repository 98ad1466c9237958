// CombineBasis: what a combine goes by: the newest dispatch, or the one that left its handle. LeftRouting finds it once
// for all that a call enqueues.
#pragma once

#include <cstdint>

#include "ferry/detail/cuda/state/arrived_rows.h"
#include "ferry/detail/layout/handle_header.h"
#include "ferry/detail/protocol/contracts/round.h"

namespace ferry::cuda {

struct CombineBasis {
  const std::uint8_t* masked = nullptr;    // I11: with a handle the newest mask, else that of the dispatch
  ArrivedRows arrived;                     // without those that had no room
  const RoutingEntry* own = nullptr;       // this rank's table in the handle; null: that of the newest routing
  const HandleHeader* header = nullptr;    // of the handle; null: there is none
  const HandleRow* handle_rows = nullptr;  // all rows of the handle
  bool exact = false;                      // CombineArgs::exact
  bool may_lack_rows = false;              // some may have had no room
  bool is_extra = false;                   // DeviceState::extra_result has its number
};

}  // namespace ferry::cuda
