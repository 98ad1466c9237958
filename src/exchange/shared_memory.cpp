// Exchange::Front: exchanges that lie in one memory, of which one has it. The steps are those of release and restore,
// but the memory stays where it is: the words of one exchange leave it, and those of another one come.
#include <fmt/core.h>

#include <utility>

#include "exchange/agreement/together.h"
#include "exchange/call_scope.h"
#include "exchange/front.h"
#include "exchange/sizes/sizes.h"

namespace ferry {
namespace {

// While it lives, steps of an exchange run in a call of another one.
class Entered {
 public:
  explicit Entered(ExchangeSteps& steps) : steps_(steps) { steps_.enter(); }
  ~Entered() { steps_.leave(); }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  ExchangeSteps& steps_;
};

}  // namespace

// As far as this rank knows. I16: every rank that may write to the memory is a rank of the new exchange, too.
void Exchange::Front::require_place_in(const Front& memory_of) const {
  if (!world_can_.shared_memory)
    throw Error(ErrorKind::unsupported,
                fmt::format("rank {}: exchanges of this world ({}) cannot share memory; give each its own", rank_,
                            world_.backend()));
  if (options_.skip_a2a != memory_of.options_.skip_a2a)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("rank {}: skip_a2a is {} here and {} of the exchange whose memory it shares; they must be "
                            "the same",
                            rank_, options_.skip_a2a, memory_of.options_.skip_a2a));
  memory_of.require_no_lost_rank("an exchange in the memory of another one");
  const LaidMemory<Front>& memory = *memory_of.place_->memory();
  for (int rank = 0; rank < world_.size(); ++rank)
    if (is_masked(options_.mask, rank) != is_masked(memory.made_without, rank))
      throw Error(
          ErrorKind::invalid_argument,
          fmt::format("rank {}: mask {} rank {}, and that of the exchange whose memory it shares does not agree; "
                      "give the same mask",
                      rank_, is_masked(options_.mask, rank) ? "names" : "does not name", rank));
  const std::size_t bytes =
      make_heap_map(shape_, options_, rank_, world_.has_remote_ranks() && !options_.skip_a2a).total();
  if (bytes > memory.bytes)
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("rank {}: this exchange needs {} bytes of symmetric memory, and the exchange whose memory it "
                    "shares has {}; make the larger exchange first",
                    rank_, bytes, memory.bytes));
}

std::unique_ptr<ExchangeSteps> Exchange::Front::make_steps(const HeapMap& map, const cuda::Launchers* kernels,
                                                           const Front* memory_of) {
  std::unique_ptr<ExchangeSteps> made;
  if (memory_of == nullptr) {
    made = kernels == nullptr ? world_.make_steps(shape_, options_, map)
                              : world_.make_compiled_steps(shape_, options_, map, *kernels);
    place_.emplace(std::make_shared<LaidMemory<Front>>(), *this);
    (*place_)->bytes = map.total();
    (*place_)->made_without = (*place_)->masked = mask_;
    (*place_)->holder = this;
  } else {
    made = world_.make_steps_in(memory_of->steps_->memory(), shape_, options_, map);
    made->leave_memory(false);
    place_.emplace(memory_of->place_->memory(), *this);
    order_.set_without_memory(true);
  }
  return made;
}

std::size_t Exchange::Front::memory_bytes() const {
  if (!place_->counts_bytes()) return 0;
  const Front* const holder = (*place_)->holder;
  return (*place_)->bytes - (holder != nullptr ? holder->steps_->given_back() : (*place_)->given_back);
}

// This exchange has the memory, and is about to be gone.
void Exchange::Front::leave_place() noexcept {
  (*place_)->is_released = order_.is_released();
  (*place_)->given_back = steps_->given_back();
}

// Options by which a rank tells those that are still there why it refuses `options`.
ExchangeOptions Exchange::Front::options_of_all(const ExchangeOptions& options) const {
  ExchangeOptions told = options;
  if (place_->memory()->find_lost() >= 0) told.mask = place_->memory()->masked;
  return told;
}

// I16
void Exchange::Front::require_no_lost_rank(const char* call) const {
  const int lost = (*place_)->find_lost();
  if (lost < 0 || options_.skip_a2a) return;
  throw Error(
      ErrorKind::out_of_order,
      fmt::format("rank {}: {}: rank {} was masked since this memory was allocated, and may still write there as the "
                  "exchange does that had it then; destroy the exchanges that share it, and make them anew with a mask",
                  rank_, call, lost));
}

// False: this exchange has ended, so nothing of it is kept. Throws where it cannot leave the memory.
bool Exchange::Front::may_leave_memory(const CallOptions& call, std::chrono::milliseconds deadline) {
  const Entered entered(*steps_);
  try {
    steps_->poll();
    if (steps_->end().get() != nullptr) return false;
    order_.require_may_release(rank_, "take_memory, of the exchange that has the memory");
    steps_->start_on_host(call, deadline);
    steps_->require_can_release();
  } catch (const PeerMissing&) {
    return false;
  }
  return true;
}

// Before a new exchange allocates anything, which spoils a capture. Collective.
void Exchange::Front::require_would_leave(std::chrono::milliseconds deadline) const {
  const LaidMemory<Front>& memory = *place_->memory();
  const auto ask = [&] {
    require_no_lost_rank("an exchange in the memory of another one");
    if (memory.holder != nullptr) memory.holder->may_leave_memory({}, deadline);
  };
  ferry::together(world_, ask, memory.masked, deadline);
}

// False: as above.
bool Exchange::Front::ends_calls() {
  const Entered entered(*steps_);
  try {
    steps_->finish_calls();
  } catch (const PeerMissing&) {
  }
  return steps_->end().get() == nullptr;
}

// I16: all ranks come here, and none makes another call before it has returned. So what an exchange sent in its last
// calls has landed when all ranks have ended them: then its words may leave, on all ranks before those of another one
// come.
void Exchange::Front::take_memory(const CallOptions& call) {
  CallScope scope(*steps_, traced_, "take_memory");
  const std::chrono::milliseconds deadline = deadline_of(call);
  require_ended_nowhere(deadline);
  Front* const holder = (*place_)->holder;
  bool keeps = false;
  const auto begin = [&] {
    if (holder == this) return;
    require_no_lost_rank("take_memory");
    keeps = holder != nullptr && holder->may_leave_memory(call, deadline);
    steps_->start_on_host(call, deadline);
    steps_->require_can_release();
  };
  together(begin, deadline);
  if (holder == this) return;
  const auto finish = [&] {
    if (keeps) keeps = holder->ends_calls();
    steps_->finish_calls();
  };
  together(finish, deadline);
  take_from(holder, keeps, deadline);
  move_in(deadline);
}

// Where it fails on one rank, no rank's words have gone. All ranks meet, as the holder may be gone on some alone.
void Exchange::Front::take_from(Front* holder, bool keeps, std::chrono::milliseconds deadline) {
  const auto leave = [&] {
    if (holder == nullptr) return;
    const Entered entered(*holder->steps_);
    holder->steps_->leave_memory(keeps);
  };
  try {
    together(leave, deadline);
  } catch (const PeerMissing&) {
    throw;
  } catch (const Error&) {
    if (holder != nullptr) holder->steps_->hold_memory();
    together([] {}, deadline);
    throw;
  }
  if (holder == nullptr) return;
  if (!keeps) holder->leave_place();  // it has ended, maybe between release and restore
  holder->order_.set_without_memory(true);
}

void Exchange::Front::move_in(std::chrono::milliseconds deadline) {
  LaidMemory<Front>& memory = *place_->memory();
  try {
    if (memory.is_released) ends_where_a_rank_is_missing([&] { steps_->take_again(memory.masked, deadline); });
    memory.is_released = false;
    memory.given_back = 0;
    together([&] { steps_->bring_words_back(); }, deadline);
    hold_memory(deadline);
  } catch (...) {
    memory.holder = nullptr;
    throw;
  }
  memory.holder = this;
  order_.set_without_memory(false);
}

// The words of all ranks are there. A rank that aborted before told nobody by them: it does not come here. One that
// aborts from now on does.
void Exchange::Front::hold_memory(std::chrono::milliseconds deadline) {
  steps_->hold_memory();
  together([] {}, deadline);
}

}  // namespace ferry
