// Exchange::Front: the part of an exchange that all backends share. It compares the ranks' contracts when the exchange
// is made; of each call it checks the order, the deadline and the arguments, and then it runs the backend's steps.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "exchange/calls/call_order.h"
#include "exchange/checks/counts_input.h"
#include "exchange/checks/validate.h"
#include "exchange/exchange_steps.h"
#include "exchange/f32_weights.h"
#include "exchange/handles/host_handles.h"
#include "exchange/log/trace_log.h"
#include "exchange/memory_place.h"
#include "exchange/open_exchanges.h"
#include "exchange/sizes/call_formats.h"
#include "ferry/exchange.h"

namespace ferry {

class Exchange::Front {
 public:
  // `kernels`: compiled by the program; null: the library's. `memory_of`: in whose memory it lies; null: in its own.
  Front(World& world, const Shape& shape, const ExchangeOptions& options, const cuda::Launchers* kernels,
        const Front* memory_of);
  ~Front();
  void set_hooks(const cuda::HookBytes& hooks) {
    steps_->set_hooks(hooks);
    has_hooks_ = true;
  }
  void require_hooks() { needs_hooks_ = true; }
  Front(const Front&) = delete;
  Front& operator=(const Front&) = delete;

  void dispatch_async(const DispatchInput& in, const CallOptions& call);
  RowCounts wait_for_counts(const CallOptions& call);
  void dispatch_wait(const DispatchOutput& out, const CallOptions& call);
  void dispatch(const DispatchInput& in, const DispatchOutput& out, const CallOptions& call);
  void combine_async(const CombineInput& in, const CallOptions& call);
  void combine_wait(const CombineOutput& out, const CallOptions& call);
  void combine(const CombineInput& in, const CombineOutput& out, const CallOptions& call);
  void check();
  void add_to_mask(const RankMask& mask);
  void release(const CallOptions& call);
  void restore(const CallOptions& call);
  void take_memory(const CallOptions& call);

  World& world() const { return world_; }
  const Shape& shape() const { return shape_; }
  const ExchangeOptions& options() const { return options_; }
  const RowLayout& layout(int format) const { return formats_.layout_in(format); }
  ArrivalSlots arrival_slots(int format) const;
  int rank() const { return rank_; }
  std::size_t memory_bytes() const;
  bool takes_device_memory() const { return world_can_.device_memory; }
  Stats stats() const { return steps_->stats(); }

 private:
  const CheckContext& call_context() const { return contexts_[formats_.taken()]; }
  std::chrono::milliseconds deadline_of(const CallOptions& call) const;
  void start(Call which, const CallOptions& call);
  void require_not_ended() const;
  void ends_where_a_rank_is_missing(const std::function<void()>& collective);
  void together(const std::function<void()>& work, std::chrono::milliseconds deadline);
  void require_ended_nowhere(std::chrono::milliseconds deadline);
  void require_place_in(const Front& memory_of) const;
  void leave_place() noexcept;
  ExchangeOptions options_of_all(const ExchangeOptions& options) const;
  void require_no_lost_rank(const char* call) const;
  void require_would_leave(std::chrono::milliseconds deadline) const;
  bool may_leave_memory(const CallOptions& call, std::chrono::milliseconds deadline);
  bool ends_calls();
  void take_from(Front* holder, bool keeps, std::chrono::milliseconds deadline);
  void move_in(std::chrono::milliseconds deadline);
  void hold_memory(std::chrono::milliseconds deadline);
  std::unique_ptr<ExchangeSteps> make_steps(const HeapMap& map, const cuda::Launchers* kernels, const Front* memory_of);
  void require_possible(const Front* memory_of) const;
  void require_order_of_world(RowOrder order) const;
  void tell_left() noexcept;
  DispatchArgs checked_dispatch_input(const DispatchInput& in, Ticket& ticket);
  RowsOut checked_rows(const DispatchOutput& out, const Ticket& ticket);
  template <class Body>
  void may_be_refused(const Body& body, const Ticket* begins = nullptr);
  void receive(const RowsOut& rows);
  CombineArgs checked_combine_input(const CombineInput& in, Ticket& ticket);
  Ticket next_combine(const CombineInput& in) const;
  bool read_handle(const ConstTensor& handle, Operation operation, Ticket& ticket);
  CombineOut checked_sums(const CombineOutput& out, Ticket& ticket, CombineArgs& args);
  void learn_rows(const CombineInput& in);
  void learn_tokens(const CombineOutput& out, Ticket& ticket, CombineArgs& args) const;

  World& world_;
  const int rank_;
  const Shape shape_;
  const ExchangeOptions options_;
  const WorldCapabilities world_can_;
  CallFormats formats_;
  std::size_t message_slot_bytes_ = 0;
  std::vector<CheckContext> contexts_;  // [formats]
  const TracedExchange traced_;
  std::unique_ptr<ExchangeSteps> steps_;
  std::uint32_t number_ = 0;  // in its world
  std::optional<MemoryPlace<Front>> place_;
  std::optional<OpenExchange> open_;
  int exceptions_;  // in flight when this exchange was made
  CallOrder order_;
  bool needs_hooks_ = false;                  // its kernels have hooks of the program
  bool has_hooks_ = false;                    // set for the next call
  std::optional<std::int64_t> asked_;         // the least row capacity of the newest dispatch, where the caller asked
  std::optional<HandleFacts> replayed_;       // of the newest handle that a dispatch was given
  std::optional<HandleFacts> returned_;       // of the newest handle that a combine was given
  std::optional<HostHandles> short_handles_;  // where it may be given short ones in host memory
  CountsInput counts_input_;                  // of the newest dispatch
  F32Weights dispatch_weights_;               // of the newest dispatch
  F32Weights combine_weights_;                // of the newest combine
  CombineArgs sent_back_;                     // by the newest combine
  std::int64_t rows_by_token_ = -1;           // of the newest combine's weights and bias; -1: none
  RankMask mask_;                             // of the next dispatch
};

}  // namespace ferry
