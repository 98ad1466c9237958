#include "exchange/open_exchanges.h"

#include <algorithm>
#include <exception>

namespace ferry {

bool OpenExchanges::begin_abort(const AbortNotice& notice) {
  const std::lock_guard lock(guard_);
  if (notice_) return false;
  notice_ = notice;
  return true;
}

void OpenExchanges::abort_all() {
  const std::lock_guard lock(guard_);
  aborts_ = true;
  std::exception_ptr first;
  for (ExchangeSteps* steps : open_) {
    try {
      end(*steps);
    } catch (...) {
      if (!first) first = std::current_exception();  // the others still say it
    }
  }
  if (first) std::rethrow_exception(first);
}

void OpenExchanges::add(ExchangeSteps& steps) {
  const std::lock_guard lock(guard_);
  open_.push_back(&steps);
  if (aborts_) end(steps);
}

void OpenExchanges::remove(const ExchangeSteps& steps) {
  const std::lock_guard lock(guard_);
  std::erase(open_, &steps);
}

// The end is noted first: a call of this rank that is under way fails with it.
void OpenExchanges::end(ExchangeSteps& steps) const {
  WaitRecord record;
  record.my_rank = record.missing_rank = record.reported_by = notice_->rank;
  record.absence = Absence::aborted;
  steps.end().note(record, notice_->reason);
  steps.tell_aborted(notice_->missing);
}

}  // namespace ferry
