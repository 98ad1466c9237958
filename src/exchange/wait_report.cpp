#include "exchange/wait_report.h"

#include <fmt/core.h>

#include "base/abort_notice.h"

namespace ferry {

std::string describe(const WaitRecord& r, const std::string& reason) {
  if (r.absence == Absence::aborted) return describe_abort(r, reason) + ".";
  std::string text;
  if (r.phase == Phase::handle && r.missing_rank == r.reported_by)
    return fmt::format(
        "rank {}: rank {} gave {} bytes that are no handle of its own for this call. The exchange is over on all "
        "ranks. Make a new one.",
        r.my_rank, r.missing_rank, to_string(r.operation));
  if (r.phase == Phase::handle)
    return fmt::format(
        "rank {}: rank {} gave {} a handle of another dispatch than rank {} did, or only one of them gave a handle; "
        "all ranks must give the handle that the same dispatch left them. The exchange is over on all ranks. Make a "
        "new one.",
        r.my_rank, r.missing_rank, to_string(r.operation), r.reported_by);
  if (r.missing_rank == r.my_rank && r.reported_by == r.my_rank)
    return fmt::format(
        "rank {}: this rank failed in {} of epoch {} after a part of it had been sent; the exchange is "
        "over on all ranks. Make a new one.",
        r.my_rank, to_string(r.operation), r.epoch_wanted);
  if (r.absence == Absence::left)
    text = fmt::format("rank {}: rank {} destroyed its exchange{}; this rank's {} was {}", r.my_rank, r.missing_rank,
                       r.reported_by == r.my_rank ? "" : fmt::format(", as rank {} reports", r.reported_by),
                       to_string(r.operation), to_string(r.phase));
  else if (r.absence == Absence::ended)
    text = fmt::format("rank {}: the process of rank {} has ended{}; this rank's {} was {}", r.my_rank, r.missing_rank,
                       r.reported_by == r.my_rank ? "" : fmt::format(", as rank {} reports", r.reported_by),
                       to_string(r.operation), to_string(r.phase));
  else if (r.reported_by == r.my_rank)
    text = fmt::format("rank {}: rank {} is missing: {} passed its deadline {}", r.my_rank, r.missing_rank,
                       to_string(r.operation), to_string(r.phase));
  else if (r.missing_rank == r.my_rank)
    text = fmt::format("rank {}: rank {} gave up on this rank, whose {} was late ({})", r.my_rank, r.reported_by,
                       to_string(r.operation), to_string(r.phase));
  else
    text = fmt::format("rank {}: rank {} is missing, as rank {} reports; this rank's {} was {}", r.my_rank,
                       r.missing_rank, r.reported_by, to_string(r.operation), to_string(r.phase));
  if (r.token >= 0) text += fmt::format(" {}", r.token);
  if (r.block >= 0) text += fmt::format(" in block {}", r.block);
  return text + fmt::format(" (epoch {} seen, {} wanted). Make a new exchange whose mask names the missing rank.",
                            r.epoch_seen, r.epoch_wanted);
}

void throw_ended(const WaitRecord& record, const char* addition) {
  const std::string text = describe(record) + addition;
  if (record.phase == Phase::handle) throw Error(ErrorKind::invalid_argument, text);
  throw PeerMissing(record, text);
}

}  // namespace ferry
