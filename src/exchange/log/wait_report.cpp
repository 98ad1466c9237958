#include "exchange/log/wait_report.h"

#include <fmt/core.h>

#include "base/abort_notice.h"
#include "base/debug_log.h"
#include "ferry/detail/layout/handle_header.h"
#include "ferry/detail/layout/other_handle.h"

namespace ferry {

// "waiting for the result of token 7 in block 12".
static std::string what_was_awaited(const WaitRecord& r) {
  std::string text = to_string(r.phase);
  if (r.token >= 0 && r.phase == Phase::message)
    text = fmt::format("waiting for token {}", r.token);
  else if (r.token >= 0 && r.phase == Phase::result)
    text = fmt::format("waiting for the result of token {}", r.token);
  else if (r.token >= 0)
    text += fmt::format(" {}", r.token);
  return r.block < 0 ? text : fmt::format("{} in block {}", text, r.block);
}

// A rank whose kernel refused a call says in its abort word why. CPU ranks never name themselves.
static bool was_another_dispatch_replayed(const WaitRecord& r) {
  return r.phase == Phase::handle && r.missing_rank == r.reported_by &&
         r.epoch_wanted == static_cast<Epoch>(HandleField::newest_dispatch);
}
// Another rank's word does not say of which call it was.
static std::string describe_replay(const WaitRecord& r) {
  const bool is_known = r.reported_by == r.my_rank;
  std::string between, advice;
  if (!is_known || r.operation == Operation::dispatch) between = "dispatch_async and dispatch_wait";
  if (!is_known) between += ", or ";
  if (!is_known || r.operation == Operation::combine) {
    between += "a dispatch and the end of its combine, which was given no handle";
    advice = "Combine before the replay, or with a handle of that dispatch. ";
  }
  return fmt::format(
      "rank {}: on rank {} a CUDA graph with a dispatch of this exchange was replayed between {}. {}The exchange is "
      "over "
      "on all ranks. Make a new one.",
      r.my_rank, r.missing_rank, between, advice);
}

// What two marks of one call say that its ranks did differently; empty: they gave handles of different dispatches.
static std::string describe_other_call(const WaitRecord& r, std::uint32_t mark, std::uint32_t mine) {
  const std::uint32_t differing = mark ^ mine;
  if (r.operation == Operation::combine && differing == kMarkOfExact)
    return fmt::format(
        "rank {}: of rank {} and rank {} one said that the reduction of a combine is exact, and the other that it is "
        "by_rank; all ranks must say the same. The exchange is over on all ranks. Make a new one.",
        r.my_rank, r.missing_rank, r.reported_by);
  if ((differing & kMarkOfHandle) != 0)
    return fmt::format(
        "rank {}: of rank {} and rank {} only rank {} gave {} a handle; all ranks must give the handle that the same "
        "dispatch left them. The exchange is over on all ranks. Make a new one.",
        r.my_rank, r.missing_rank, r.reported_by, (mark & kMarkOfHandle) != 0 ? r.missing_rank : r.reported_by,
        to_string(r.operation));
  return {};
}

// GPUs know whose routing each handle holds.
static std::string describe_other_handle(const WaitRecord& r) {
  const OtherHandle other = OtherHandle::of(r.epoch_wanted, r.missing_rank);
  if (const std::string text = describe_other_call(r, other.mark, other.mine); !text.empty()) return text;
  return fmt::format(
      "rank {}: rank {} gave {} a handle of another dispatch than rank {} did, or of another exchange; all ranks must "
      "give the handle that the same dispatch left them. The exchange is over on all ranks. Make a new one.",
      r.my_rank, r.missing_rank, to_string(r.operation), r.reported_by);
}

// A CPU rank that compares has the words of both. One that is told of it knows no more than whose they are.
static std::string describe_call_of_cpus(const WaitRecord& r) {
  const bool compared = r.reported_by == r.my_rank;
  std::string text;
  if (compared)
    text = describe_other_call(r, static_cast<std::uint32_t>(r.epoch_seen & 0xFFFFu),
                               static_cast<std::uint32_t>(r.epoch_wanted & 0xFFFFu));
  if (!text.empty()) return text;
  return fmt::format(
      "rank {}: rank {} gave {} a handle of another dispatch or exchange than rank {} did{}, or only one of them gave "
      "a handle; "
      "all ranks must give the handle that the same dispatch left them. The exchange is over on all ranks. Make a "
      "new one.",
      r.my_rank, r.missing_rank, to_string(r.operation), r.reported_by,
      r.operation == Operation::dispatch ? ", or took another format" : ", or said another reduction");
}

std::string describe(const WaitRecord& r, const std::string& reason) {
  if (r.absence == Absence::aborted) return describe_abort(r, reason) + ".";
  std::string text;
  const std::string awaited = what_was_awaited(r);
  if (was_another_dispatch_replayed(r)) return describe_replay(r);
  if (r.phase == Phase::handle && r.epoch_seen == kSeenAnotherHandle) return describe_other_handle(r);
  if (r.phase == Phase::handle && r.missing_rank == r.reported_by)
    return fmt::format(
        "rank {}: rank {} gave {} bytes that are no handle of its own for this call. The exchange is over on all "
        "ranks. Make a new one.",
        r.my_rank, r.missing_rank, to_string(r.operation));
  if (r.phase == Phase::handle) return describe_call_of_cpus(r);
  const bool is_own = r.missing_rank == r.my_rank && r.reported_by == r.my_rank;
  if (is_own && r.phase != Phase::none)
    return fmt::format(
        "rank {}: {} passed its deadline {}, which this rank itself was to send; the exchange is over on all ranks. "
        "Make a new one, with a longer deadline if the machine is busy.",
        r.my_rank, to_string(r.operation), awaited);
  if (is_own)
    return fmt::format(
        "rank {}: this rank failed in {} after a part of it had been sent; the exchange is over on all ranks. Make a "
        "new one.",
        r.my_rank, to_string(r.operation));
  if (r.absence == Absence::left)
    text = fmt::format("rank {}: rank {} destroyed its exchange{}; this rank's {} was {}", r.my_rank, r.missing_rank,
                       r.reported_by == r.my_rank ? "" : fmt::format(", as rank {} reports", r.reported_by),
                       to_string(r.operation), awaited);
  else if (r.absence == Absence::ended)
    text = fmt::format("rank {}: the process of rank {} has ended{}; this rank's {} was {}", r.my_rank, r.missing_rank,
                       r.reported_by == r.my_rank ? "" : fmt::format(", as rank {} reports", r.reported_by),
                       to_string(r.operation), awaited);
  else if (r.reported_by == r.my_rank)
    text = fmt::format("rank {}: rank {} is missing: {} passed its deadline {}", r.my_rank, r.missing_rank,
                       to_string(r.operation), awaited);
  else if (r.missing_rank == r.my_rank)
    text = fmt::format("rank {}: rank {} gave up on this rank, whose {} was late ({})", r.my_rank, r.reported_by,
                       to_string(r.operation), awaited);
  else
    text = fmt::format("rank {}: rank {} is missing, as rank {} reports; this rank's {} was {}", r.my_rank,
                       r.missing_rank, r.reported_by, to_string(r.operation), awaited);
  return text + ". Make a new exchange whose mask names the missing rank.";
}

void throw_ended(const WaitRecord& record, const char* addition) {
  const std::string text = describe(record) + addition;
  debug_log(DebugLevel::warn, record.my_rank, [&record] {
    return fmt::format("{} {}: epoch {} seen, {} wanted", to_string(record.operation), what_was_awaited(record),
                       record.epoch_seen, record.epoch_wanted);
  });
  if (was_another_dispatch_replayed(record)) throw Error(ErrorKind::out_of_order, text);
  if (record.phase == Phase::handle) throw Error(ErrorKind::invalid_argument, text);
  throw PeerMissing(record, text);
}

}  // namespace ferry
