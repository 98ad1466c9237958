#include "base/abort_notice.h"

#include <fmt/core.h>

namespace ferry {

std::string describe_abort(const WaitRecord& r, const std::string& reason) {
  if (r.missing_rank == r.my_rank) return fmt::format("rank {}: this rank aborted: {}", r.my_rank, reason);
  std::string text;
  if (r.reported_by == r.missing_rank || r.reported_by == r.my_rank)
    text = fmt::format("rank {}: rank {} aborted: {}", r.my_rank, r.missing_rank, reason);
  else
    text = fmt::format("rank {}: rank {} is missing, as rank {} says, which aborted: {}", r.my_rank, r.missing_rank,
                       r.reported_by, reason);
  return text + ". End this rank, too, or make a new exchange whose mask names that rank";
}

void throw_aborted(int my_rank, const AbortNotice& notice, const RankMask& mask, std::uint64_t call) {
  WaitRecord record;
  record.operation = Operation::set_up;
  record.absence = Absence::aborted;
  record.my_rank = my_rank;
  record.missing_rank = is_masked(mask, notice.missing) ? notice.rank : notice.missing;
  record.reported_by = notice.rank;
  record.epoch_wanted = call;
  throw Aborted(record, notice.reason, describe_abort(record, notice.reason));
}

}  // namespace ferry
