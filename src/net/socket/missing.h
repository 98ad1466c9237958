// The error of a rank that does not come to set-up.
#pragma once

#include <string>

#include "ferry/error.h"

namespace ferry::net {

[[noreturn]] inline void throw_missing(int rank, int missing, int reported_by, std::uint64_t turn,
                                       const std::string& message, Absence absence = Absence::late) {
  WaitRecord record;
  record.operation = Operation::set_up;
  record.my_rank = rank;
  record.missing_rank = missing;
  record.reported_by = reported_by;
  record.epoch_wanted = turn;
  record.absence = absence;
  throw PeerMissing(record, message);
}

}  // namespace ferry::net
