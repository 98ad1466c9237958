// ExchangeSteps: what a backend writes of an exchange. The front (front.h) has done the rest when it calls a step: the
// call is allowed now, its arguments are checked, and the ticket says which dispatch the step belongs to.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "exchange/calls/call_order.h"
#include "exchange/calls/call_trace.h"
#include "exchange/checks/handle_check.h"
#include "exchange/checks/validate.h"
#include "exchange/exchange_end.h"
#include "exchange/exchange_memory.h"
#include "exchange/log/wait_report.h"
#include "ferry/exchange.h"

namespace ferry {

// What the ranks gave to one dispatch does not fit together. `await_counts` or `receive` throws it when nothing of the
// dispatch is on its way to this rank any more, on all ranks or on none.
// The front gives the dispatch up, so the next call is another dispatch.
class DispatchRefused : public Error {
 public:
  DispatchRefused(int rank, const std::string& why)
      : Error(ErrorKind::invalid_argument, "rank " + std::to_string(rank) + ": " + why) {}
  // The newest kept combine is half done, and its first half came after the dispatch, so it is given up, too.
  bool gives_up_half_combine = false;
  // One rank gave more tokens than a dispatch can take.
  static DispatchRefused too_many_tokens(int rank, int source, std::uint32_t tokens, int max_tokens) {
    return {rank,
            "tokens of rank " + std::to_string(source) + " has " + std::to_string(tokens) +
                " rows; the limit is max_tokens = " + std::to_string(max_tokens) +
                ". All ranks refuse this dispatch, and another one may follow. Dispatch in several rounds or make "
                "a larger exchange"};
  }
  // This rank gave counts and `source` ids, or the other way round.
  static DispatchRefused counts_differ(int rank, bool by_counts, int source) {
    const auto name = [](bool counts) { return std::string(counts ? "in_rank" : "topk_ids"); };
    return {rank, name(by_counts) + " is given here and " + name(!by_counts) + " on rank " + std::to_string(source) +
                      "; all ranks of a dispatch give the same"};
  }
};

class ExchangeSteps {
 public:
  virtual ~ExchangeSteps() = default;

  // Around all that a call does, checks included.
  virtual void enter() {}
  virtual void leave() noexcept {}

  // Between the two a Trace may record the call; null: no longer.
  virtual void trace_to(CallTrace*) {}

  // What the kernels' hooks read in the calls from now on: of kernels that the program has compiled.
  virtual void set_hooks(const cuda::HookBytes&) {}

  // Before the first call: the exchange's number in its world, which handles carry (I22).
  virtual void set_exchange_number(std::uint32_t) {}

  // First of each call. `deadline`: of each wait in it.
  virtual void start(const CallOptions& call, std::chrono::milliseconds deadline) = 0;
  // The same of release, restore and take_memory, which enqueue nothing.
  virtual void start_on_host(const CallOptions& call, std::chrono::milliseconds deadline) { start(call, deadline); }

  // Before a dispatch is checked: its format (DispatchInput::format), which the exchange has. No dispatch is half done.
  virtual void take_format(int) {}

  // What this backend asks of a call's arguments besides validate.h, before anything moves (I17).
  virtual void check_dispatch_input(const CheckContext& context, const DispatchInput& in, DispatchArgs& args) = 0;
  virtual void check_rows(const CheckContext&, const DispatchOutput&) {}
  virtual void check_combine_input(const CheckContext& context, const Ticket& ticket, const CombineInput& in,
                                   const CombineArgs& args) = 0;
  virtual void check_sums(const CheckContext&, const Ticket&, const CombineOutput&, const CombineOut&) {}
  // Rows that the newest dispatch laid out, row_offsets[groups]; 0 where only the device knows.
  virtual std::uint32_t num_rows() const { return 0; }
  // What a handle says that a dispatch or combine is given; no facts where only the device knows. Throws where it is no
  // handle for this rank and shape.
  virtual std::optional<HandleFacts> read_handle(const CheckContext& context, const std::byte*, Operation) {
    refuse_handles(context);
  }
  // Throws where this backend leaves no handles.
  virtual void require_handles(const CheckContext& context) { refuse_handles(context); }

  // The first slot for messages, of all copies, in memory that the caller can read. Always the same address.
  virtual const std::byte* arrival_slots() = 0;

  // The two halves of a dispatch, and the two halves of its combine. `sent` is what send_back was given.
  virtual void send(const Ticket& ticket, const DispatchArgs& args) = 0;
  virtual void receive(const Ticket& ticket, const RowsOut& rows) = 0;
  // Waits until it is known what came, and returns the least row capacity. It may be repeated, and `row_counts` follows
  // it. Of worlds with row_counts it is the first step of receiving; of those with only asked_counts it is called
  // where the caller asks.
  virtual std::int64_t await_counts(const Ticket&) { return 0; }
  virtual RowCounts row_counts(const Ticket&) const { return {}; }
  virtual void send_back(const Ticket& ticket, const CombineArgs& args) = 0;
  virtual void reduce(const Ticket& ticket, const CombineArgs& sent, const CombineOut& sums) = 0;

  // Where a backend runs both halves at once, as one kernel does, the front calls these in place of the halves.
  virtual bool fuses_halves() const { return false; }
  virtual void dispatch(const Ticket&, const DispatchArgs&, const RowsOut&) {}
  virtual void combine(const Ticket&, const CombineArgs&, const CombineOut&) {}

  // Throws what was found out since the last call, without waiting.
  virtual void poll() {}
  // Throws DispatchRefused, once, where a dispatch was refused and `receive` did not wait for that. What was called
  // since has done nothing, on this rank and on all others. `in_call`: after `start`, else in a check.
  virtual void require_not_refused(bool) {}
  // I11: from the next dispatch on. `mask` has all of the mask before. Not called with skip_a2a.
  virtual void set_mask(const RankMask& mask) = 0;

  // Exchange::release, in steps. No rank begins one before all ranks have ended the one before it. The slots may be
  // lost; every word and number stays. `mask`: ranks that take no part any more. `bytes`: of the memory, which are more
  // than this exchange's own where it lies in that of a larger one; nothing of the others is there.
  virtual void require_can_release() const {}  // throws in a capture
  // Waits until all work of this rank has ended, and all that it sent has landed where all_gather of the world does not
  // see to that.
  virtual void finish_calls() {}
  virtual void give_back(const RankMask& mask, std::size_t bytes);
  // Exchange::restore. Collective: memory at the same addresses, on all ranks or on none.
  virtual void take_again(const RankMask&, std::chrono::milliseconds) {}
  virtual void bring_words_back() {}  // may be called again
  virtual void hold_memory() {}       // the words of all ranks are there
  // Exchange::take_memory, in the same steps: one exchange leaves the memory between finish_calls and bring_words_back
  // of another one, which then holds it. From then on no thread writes there for the first one. Its words wait in
  // host memory; where it `keeps` none they are zero (I13), as those of an exchange that never had the memory.
  virtual std::shared_ptr<ExchangeMemory> memory() const { return {}; }
  virtual void leave_memory(bool /*keeps*/) {}
  // Of the symmetric memory.
  virtual std::size_t given_back() const { return 0; }

  // From any thread, also during a call.
  virtual Stats stats() const = 0;

  // This rank aborts its world. Ends the waits of all ranks in this exchange, this one's included (I10). They name the
  // rank `missing`: this one, or one that it missed. From any thread, also during a call.
  virtual void tell_aborted(int) {}
  // This rank is about to destroy its exchange. Ends the waits of the others for what it never sent (I10): what follows
  // the newest dispatch and the newest combine in the order of calls.
  virtual void tell_left(const CallOrder&) {}

  // What ended the exchange. From then on the front refuses every call.
  ExchangeEnd& end() const { return *end_; }
  const std::shared_ptr<ExchangeEnd>& shared_end() const { return end_; }

 protected:
  ExchangeSteps() : end_(std::make_shared<ExchangeEnd>()) {}
  // For steps over other steps: both share one end.
  explicit ExchangeSteps(std::shared_ptr<ExchangeEnd> end) : end_(std::move(end)) {}

  // A wait failed, and the record says why: ends the exchange and throws.
  [[noreturn]] void end_exchange(const WaitRecord& record) { ExchangeEnd::raise(*end_->note(record)); }

 private:
  [[noreturn]] static void refuse_handles(const CheckContext& context) {
    throw Error(ErrorKind::unsupported, "rank " + std::to_string(context.rank) +
                                            ": this backend takes and leaves no handles yet; leave handle out, and "
                                            "call combine after each dispatch");
  }

  std::shared_ptr<ExchangeEnd> end_;
};

inline void ExchangeSteps::give_back(const RankMask&, std::size_t) {
  throw Error(ErrorKind::unsupported, "this backend cannot give memory back");
}

// Steps call it if the caller's tensors are in host memory: checks ids and the input scale. Sets args.input_scale.
inline void check_host_input(const CheckContext& context, const DispatchInput& in, DispatchArgs& args) {
  if (!in.handle && args.num_tokens <= context.shape.max_tokens) check_topk_ids(context, args);
  args.input_scale = check_input_scale(context, in.input_scale);
}

}  // namespace ferry
