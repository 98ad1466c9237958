// Exchange::Front: the memory of the slots is given back, and taken again.
#include <fmt/core.h>

#include <exception>
#include <span>
#include <vector>

#include "exchange/agreement/together.h"
#include "exchange/call_scope.h"
#include "exchange/front.h"

namespace ferry {

// A rank that does not come ends the exchange: the others cannot know how far it is. Nor can they know how far the
// exchange is that has the memory, where this one would take it.
void Exchange::Front::ends_where_a_rank_is_missing(const std::function<void()>& collective) {
  try {
    collective();
  } catch (const PeerMissing& missing) {
    steps_->end().note(missing.record());
    if (Front* const holder = (*place_)->holder; holder != nullptr) holder->steps_->end().note(missing.record());
    throw;
  }
}

void Exchange::Front::together(const std::function<void()>& work, std::chrono::milliseconds deadline) {
  ends_where_a_rank_is_missing([&] { ferry::together(world_, work, (*place_)->masked, deadline); });
}

// An exchange may have ended on this rank alone, and what check() would throw may be of this rank alone, too. All ranks
// take part, so the world's calls stay in step, and all learn why it ended, or what is refused.
void Exchange::Front::require_ended_nowhere(std::chrono::milliseconds deadline) {
  struct End {
    WaitRecord record;
    std::int32_t has_come = 0;
  };
  std::exception_ptr found;
  try {
    steps_->poll();
  } catch (const std::exception&) {
    found = std::current_exception();
  }
  End mine;
  if (const auto ended = steps_->end().get()) mine = {ended->record, 1};
  std::vector<End> all(static_cast<std::size_t>(shape_.ranks));
  ends_where_a_rank_is_missing([&] {
    world_.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), (*place_)->masked,
                      deadline);
  });
  bool has_ended = false;
  for (End& each : all) {
    if (each.has_come == 0) continue;
    has_ended = true;
    each.record.my_rank = rank_;
    steps_->end().note(each.record);
  }
  const auto tell = [&] {
    if (found) std::rethrow_exception(found);
  };
  if (has_ended) tell();
  require_not_ended();
  together(tell, deadline);
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
  require_ended_nowhere(deadline);
  const auto begin = [&] {
    order_.require_may_release(rank_);
    steps_->start_on_host(call, deadline);
    steps_->require_can_release();
  };
  together(begin, deadline);
  together([&] { steps_->finish_calls(); }, deadline);  // all ranks are here, so none waits for a call still to come
  order_.set_released(true);
  together([&] { steps_->give_back(mask_, (*place_)->bytes); }, deadline);  // nothing writes to any rank any more
}

void Exchange::Front::restore(const CallOptions& call) {
  CallScope scope(*steps_, traced_, "restore");
  const std::chrono::milliseconds deadline = deadline_of(call);
  require_ended_nowhere(deadline);
  const auto begin = [&] {
    order_.require_may_restore(rank_);
    steps_->start_on_host(call, deadline);
    steps_->require_can_release();
  };
  together(begin, deadline);
  ends_where_a_rank_is_missing([&] { steps_->take_again(mask_, deadline); });
  together([&] { steps_->bring_words_back(); }, deadline);  // no rank sends before all words are there
  hold_memory(deadline);
  order_.set_released(false);
}

}  // namespace ferry
