// CallOrder: which call of an exchange may come next. An exchange has two operations, dispatch and combine, each in two
// halves. A combine belongs to the newest dispatch; a kept combine belongs to the dispatch whose handle it is given.
// One table says in which state of all three each call is allowed, and which state follows.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "exchange/sizes/sizes.h"
#include "ferry/detail/layout/abort_word.h"
#include "ferry/detail/protocol/contracts/round.h"
#include "ferry/row_order.h"

namespace ferry {

// The calls. `kept_`: a combine that is given a handle.
enum class Call : std::uint8_t {
  dispatch_async,
  wait_for_counts,
  dispatch_wait,
  dispatch,
  combine_async,
  combine_wait,
  combine,
  kept_combine_async,
  kept_combine_wait,
  kept_combine,
};
inline constexpr int kCalls = 10;

// Hooks that a program compiled are read where ids are routed, and where tokens are summed.
constexpr bool reads_hooks(Call call) {
  return call == Call::dispatch_async || call == Call::dispatch || call == Call::combine_wait ||
         call == Call::combine || call == Call::kept_combine_wait || call == Call::kept_combine;
}

// How far an operation is: `half` between its _async and its _wait call.
enum class Progress : std::uint8_t { none, half, whole };

// A set of them.
class ProgressSet {
 public:
  constexpr ProgressSet(std::initializer_list<Progress> of) {
    for (const Progress each : of) bits_ |= bit(each);
  }
  constexpr bool has(Progress progress) const { return (bits_ & bit(progress)) != 0; }

 private:
  static constexpr unsigned bit(Progress progress) { return 1u << static_cast<unsigned>(progress); }
  unsigned bits_ = 0;
};

struct CallRule {
  const char* name;
  ProgressSet dispatch;  // where the dispatch may be
  ProgressSet combine;   // where the combine of the newest dispatch may be
  ProgressSet kept;      // where the newest kept combine may be
  Progress dispatch_after;
  Progress combine_after;
  const char* otherwise;  // what the error says where one of the first two is elsewhere
};

inline constexpr ProgressSet kAny{Progress::none, Progress::half, Progress::whole};
inline constexpr ProgressSet kNotHalf{Progress::none, Progress::whole};

inline constexpr const char* kHalfDispatched = "the last dispatch_async has had no dispatch_wait; call that first";
inline constexpr const char* kHalfCombined = "the last combine_async has had no combine_wait; call that first";

// One row per Call, up to the kept ones. A new dispatch abandons the combine of the one before, but no kept one. A kept
// combine leaves the others as they are.
inline constexpr std::array<CallRule, 7> kCallRules{{
    {.name = "dispatch_async",
     .dispatch = {Progress::none, Progress::whole},
     .combine = kAny,
     .kept = kAny,
     .dispatch_after = Progress::half,
     .combine_after = Progress::none,
     .otherwise = kHalfDispatched},
    {.name = "wait_for_counts",
     .dispatch = {Progress::half},
     .combine = {Progress::none},
     .kept = kAny,
     .dispatch_after = Progress::half,
     .combine_after = Progress::none,
     .otherwise = "it must come between a dispatch_async and its dispatch_wait"},
    {.name = "dispatch_wait",
     .dispatch = {Progress::half},
     .combine = {Progress::none},
     .kept = kAny,
     .dispatch_after = Progress::whole,
     .combine_after = Progress::none,
     .otherwise = "it must follow a dispatch_async of the same round"},
    {.name = "dispatch",
     .dispatch = {Progress::none, Progress::whole},
     .combine = kAny,
     .kept = kAny,
     .dispatch_after = Progress::whole,
     .combine_after = Progress::none,
     .otherwise = kHalfDispatched},
    {.name = "combine_async",
     .dispatch = {Progress::whole},
     .combine = {Progress::none},
     .kept = kNotHalf,
     .dispatch_after = Progress::whole,
     .combine_after = Progress::half,
     .otherwise = "it must follow a dispatch of the same round"},
    {.name = "combine_wait",
     .dispatch = {Progress::whole},
     .combine = {Progress::half},
     .kept = kNotHalf,
     .dispatch_after = Progress::whole,
     .combine_after = Progress::whole,
     .otherwise = "it must follow a combine_async of the same round"},
    {.name = "combine",
     .dispatch = {Progress::whole},
     .combine = {Progress::none},
     .kept = kNotHalf,
     .dispatch_after = Progress::whole,
     .combine_after = Progress::whole,
     .otherwise = "it must follow a dispatch of the same round"},
}};

// How the rows of one dispatch lie at this rank. `expert_stride`: padded only.
struct RowChoice {
  RowOrder order = RowOrder::by_expert;
  std::int64_t expert_stride = 0;
  friend bool operator==(const RowChoice&, const RowChoice&) = default;
};

// Names one dispatch, for its second half and for its combine; or one combine, for both of its halves.
struct Ticket {
  // I13: how many of each the exchange has begun.
  Epoch routing = kFirstEpoch - 1;        // routings
  Epoch message = kFirstEpoch - 1;        // dispatches
  Epoch result = kFirstEpoch - 1;         // combines
  std::uint32_t mark = 0;                 // that its call word carries (call_word.h)
  int num_tokens = 0;                     // of this rank
  TokenRange shared{0, 0};                // own tokens that go to the fused shared expert here
  RowChoice rows{};                       // of its dispatch
  Overflow overflow = Overflow::refused;  // of a dispatch
  bool has_weights = false;               // its dispatch was given weights
  bool by_counts = false;                 // its dispatch was given counts in place of ids
  const std::byte* handle = nullptr;      // that the call was given: its routing is not `routing`
  std::int64_t handle_bytes = 0;          // of that handle, where kernels read it
};

class CallOrder {
 public:
  // Throws Error(out_of_order) where the call is not allowed now.
  void require_allowed(int rank, Call call) const;
  // The call is done. One that begins an operation names its ticket.
  void advance(Call call);
  void begin_dispatch(Call call, const Ticket& ticket);
  void begin_combine(Call call, const Ticket& ticket);
  // Exchange::release may come when nothing is half done; until Exchange::restore no other call may. Nor may any but
  // Exchange::take_memory where another exchange has the memory; it takes it from one that might release it. `call`: as
  // the error names it.
  void require_may_release(int rank, const char* call = "release") const;
  void require_may_restore(int rank) const;
  void require_memory(int rank, const char* call) const;
  void set_released(bool released) { released_ = released; }
  bool is_released() const { return released_; }
  void set_without_memory(bool without) { without_memory_ = without; }
  // The newest dispatch has no rows. Another one may follow, but no combine of it. `half_combine`: nor the second half
  // of the newest kept combine.
  void give_up_dispatch(bool half_combine);

  // What the next dispatch is, but for what its arguments say; and the next combine of the newest dispatch. `replays`:
  // it is given a handle, and makes no routing.
  Ticket next_dispatch(bool replays = false) const;
  Ticket next_combine() const;
  // The next kept combine, but for what its handle says.
  Ticket next_kept_combine() const;
  // Which combine a combine_wait is of.
  Call half_combined() const { return kept_ == Progress::half ? Call::kept_combine_wait : Call::combine_wait; }
  const Ticket& dispatch_ticket() const { return dispatch_ticket_; }  // of the newest dispatch
  const Ticket& combine_ticket() const { return combine_ticket_; }    // of the newest combine
  Progress dispatch() const { return dispatch_; }
  Progress combine() const { return combine_; }
  Progress kept() const { return kept_; }
  LastSent last_sent() const;
  // A dispatch has begun and its combine has not ended, or a kept combine has not.
  bool is_open() const {
    return (dispatch_ != Progress::none && combine_ != Progress::whole) || kept_ == Progress::half;
  }

 private:
  Progress dispatch_ = Progress::none;
  Progress combine_ = Progress::none;
  Progress kept_ = Progress::none;
  bool released_ = false;
  bool without_memory_ = false;
  Ticket dispatch_ticket_;
  Ticket combine_ticket_;
};

}  // namespace ferry
