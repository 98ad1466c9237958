#include "exchange/exchange_end.h"

#include "exchange/log/wait_report.h"

namespace ferry {

std::shared_ptr<const ExchangeEnd::Ended> ExchangeEnd::note(const WaitRecord& record) {
  if (auto ended = get()) return ended;
  std::string reason;
  if (record.absence == Absence::left) reason = "it destroyed its exchange while others waited for more of it";
  if (record.absence == Absence::aborted && reason_of_) reason = reason_of_(record.missing_rank);
  return note(record, reason);
}

std::shared_ptr<const ExchangeEnd::Ended> ExchangeEnd::note(const WaitRecord& record, const std::string& reason) {
  const std::lock_guard lock(guard_);
  if (ended_ == nullptr) ended_ = std::make_shared<const Ended>(Ended{record, reason});
  return ended_;
}

void ExchangeEnd::raise(const Ended& ended, const char* more) {
  const Absence absence = ended.record.absence;
  if (absence == Absence::late || absence == Absence::ended) throw_ended(ended.record, more);
  throw Aborted(ended.record, ended.reason, describe(ended.record, ended.reason) + more);
}

}  // namespace ferry
