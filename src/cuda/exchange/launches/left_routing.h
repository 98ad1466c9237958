// LeftRouting: the routing that a dispatch leaves for combines and replays: on the device until the next dispatch, and
// in handles. It launches the small kernels ahead of a told call (I22), and of a combine that may not follow its
// dispatch at once. Where rows may have had no room, it launches the kernels that leave them out of a combine.
#pragma once

#include "cuda/exchange/launches/combine_basis.h"
#include "cuda/exchange/order/combine_order.h"
#include "cuda/exchange/state/exchange_state.h"
#include "exchange/calls/call_order.h"
#include "ferry/detail/protocol/contracts/handle.h"

namespace ferry::cuda {

class LeftRouting {
 public:
  LeftRouting(const ExchangeState& state, const Shape& shape, const ExchangeOptions& options);

  void set_exchange_number(std::uint32_t number) { header_.routing = routing_of_exchange(number, 0); }

  // Ahead of a dispatch with a handle. Returns what its kernel checks of the handle.
  HandleCheck route_again(const Ticket& ticket, DispatchArgs& args) const;
  // Behind a dispatch. Adds to what is left of it; copy_kept comes behind that.
  void leave(const Ticket& ticket, const RowsOut& out, FinishParams& left);
  void copy_kept(const Ticket& ticket, const RowsOut& out, const FinishParams& left) const;

  // Whether a combine tells the other ranks which handle or reduction it was given (I22).
  bool is_told(const Ticket& ticket) const { return ticket.handle != nullptr || combines_choose_; }
  // Ahead of a combine, or of its first half; and of its second half.
  CombineBasis begin_combine(const Ticket& ticket, const CombineArgs& args, const CombineOrder::Start& start);
  CombineBasis end_combine(const Ticket& ticket, const CombineArgs& sent) const;
  // The home of a row that had no room gets zeros in place of a result.
  void send_zeros(const CombineBasis& basis) const;

 private:
  HandleHeader header_of(const Ticket& ticket) const;
  HandleCheck handle_check(Operation operation, const Ticket& ticket) const;
  void launch_begin(const HandleCheck& check, const CombineOrder::Start& start, const std::uint8_t* masked) const;
  HandleCheck combine_check(const Ticket& ticket, const CombineArgs& args) const;
  CombineBasis basis_of(const Ticket& ticket, const CombineArgs& args) const;
  bool may_lack_rows(const Ticket& ticket) const;
  void copy_handle(const Ticket& ticket, const RowsOut& out) const;
  void fit_rows(const KeptRouting& kept, const ArrivedRows& to) const;

  const ExchangeState& state_;
  HandleHeader header_;                         // of a handle, but for what its dispatch was
  bool combines_choose_;                        // which reduction they are (Reduction::either)
  HandleRow* combined_rows_;                    // as ExchangeState::arrived: those of a handle that fit
  RowStartsToFill fitting_starts_;              // of the handle of the newest combine that may lack rows
  bool may_have_overflowed_ = false;            // rows of the newest dispatch
  bool graphs_may_overflow_ = false;            // rows of a captured one, which may run when the host does not know
  const std::uint8_t* combine_mask_ = nullptr;  // I11: of the newest combine, from its first half on
  bool is_extra_ = false;                       // begin_handle_kernel found the number of the newest combine
};

}  // namespace ferry::cuda
