// Exchange::Front: the memory of the slots is given back, and taken again.
#include <fmt/core.h>

#include "exchange/agreement/together.h"
#include "exchange/call_scope.h"
#include "exchange/front.h"

namespace ferry {

// A rank that does not come ends the exchange: the others cannot know how far it is.
void Exchange::Front::together(const std::function<void()>& work, std::chrono::milliseconds deadline) {
  try {
    ferry::together(world_, work, mask_, deadline);
  } catch (const PeerMissing& missing) {
    steps_->end().note(missing.record());
    throw;
  }
}

// The slots may go, since each is written before it is read, and all that was sent has been read when no operation is
// half done. Words, tables and numbers stay. So every rank goes on where it was (I13).
void Exchange::Front::release(const CallOptions& call) {
  if (!world_.capabilities().release)
    throw Error(ErrorKind::unsupported,
                fmt::format("rank {}: release: exchanges of this world ({}) cannot give memory back and keep its "
                            "addresses; destroy the exchange, and make it anew later",
                            rank_, world_.backend()));
  CallScope scope(*steps_, traced_, "release");
  const std::chrono::milliseconds deadline = deadline_of(call);
  const auto begin = [&] {
    require_not_ended();
    order_.require_may_release(rank_);
    steps_->start(call, deadline);
    steps_->require_can_release();
  };
  together(begin, deadline);
  together([&] { steps_->finish_calls(); }, deadline);  // all ranks are here, so none waits for a call still to come
  order_.set_released(true);
  together([&] { steps_->give_back(mask_); }, deadline);  // nothing writes to any rank any more
}

void Exchange::Front::restore(const CallOptions& call) {
  CallScope scope(*steps_, traced_, "restore");
  const std::chrono::milliseconds deadline = deadline_of(call);
  const auto begin = [&] {
    require_not_ended();
    order_.require_may_restore(rank_);
    steps_->start(call, deadline);
    steps_->require_can_release();
  };
  together(begin, deadline);
  try {
    steps_->take_again(mask_, deadline);
  } catch (const PeerMissing& missing) {
    steps_->end().note(missing.record());
    throw;
  }
  together([&] { steps_->bring_words_back(); }, deadline);  // no rank sends before all words are there
  order_.set_released(false);
}

}  // namespace ferry
