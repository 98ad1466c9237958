// ShortHandles: makes whole handles of the short ones that calls are given, and short ones of those that dispatches
// leave, in device memory. What else goes ahead of a call and behind it knows of whole ones only.
#pragma once

#include "cuda/exchange/state/exchange_state.h"
#include "exchange/calls/call_order.h"
#include "ferry/detail/layout/handle_header.h"
#include "ferry/detail/protocol/contracts/args.h"

namespace ferry::cuda {

class ShortHandles {
 public:
  ShortHandles(const ExchangeState& state, const Shape& shape, const ExchangeOptions& options);

  // The ticket of a call with the whole handle in place of a short one. `begin` also enqueues what makes it, ahead of
  // the first half of a call.
  Ticket begin(const Ticket& ticket, Operation operation) const;
  Ticket of_whole(const Ticket& ticket, Operation operation) const;

  // Of a dispatch, in this order: the tensor of the handle that it leaves; its outputs, with a whole handle in place of
  // a short one; and last, with the outputs that the caller gave, the short handle of that whole one.
  void take_left(const Tensor& handle) { left_bytes_ = handle ? static_cast<std::size_t>(handle.shape[0]) : 0; }
  RowsOut with_whole(const RowsOut& out) const;
  void leave(const RowsOut& out) const;

 private:
  bool is_short(std::size_t bytes) const { return bytes != 0 && bytes < whole_bytes_; }
  std::byte* whole_of(Operation operation) const;

  const ExchangeState& state_;
  HandleHeader header_;
  std::size_t whole_bytes_;
  std::size_t left_bytes_ = 0;  // by the newest dispatch; 0: it leaves none
};

}  // namespace ferry::cuda
