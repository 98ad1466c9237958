#include "cuda/exchange/launches/short_handles.h"

#include "exchange/checks/handle_check.h"
#include "ferry/detail/cuda/launch/launch.h"
#include "ferry/detail/protocol/contracts/handle.h"

namespace ferry::cuda {

ShortHandles::ShortHandles(const ExchangeState& state, const Shape& shape, const ExchangeOptions& options)
    : state_(state),
      header_(handle_header(state.rank(), shape, options, {})),
      whole_bytes_(HandleSizes(state.plan()).bytes()) {}

std::byte* ShortHandles::whole_of(Operation operation) const {
  return state_.memory()->as<std::byte>(state_.state_plan().whole_handles +
                                        (operation == Operation::dispatch ? 0 : whole_bytes_));
}

Ticket ShortHandles::of_whole(const Ticket& ticket, Operation operation) const {
  Ticket whole = ticket;
  if (ticket.handle != nullptr && is_short(static_cast<std::size_t>(ticket.handle_bytes)))
    whole.handle = whole_of(operation);
  return whole;
}

Ticket ShortHandles::begin(const Ticket& ticket, Operation operation) const {
  const Ticket whole = of_whole(ticket, operation);
  if (whole.handle == ticket.handle) return whole;
  LengthenParams params;
  params.plan = state_.plan();
  params.state = state_.links().state;
  params.wanted = header_;
  params.from = ticket.handle;
  params.bytes = static_cast<std::size_t>(ticket.handle_bytes);
  params.to = whole_of(operation);
  launch_lengthen(params, state_.most_small_blocks(), state_.stream());
  return whole;
}

RowsOut ShortHandles::with_whole(const RowsOut& out) const {
  RowsOut whole = out;
  if (out.handle != nullptr && is_short(left_bytes_)) whole.handle = whole_of(Operation::dispatch);
  return whole;
}

void ShortHandles::leave(const RowsOut& out) const {
  if (out.handle == nullptr || !is_short(left_bytes_)) return;
  ShortenParams params;
  params.plan = state_.plan();
  params.state = state_.links().state;
  params.record = state_.links().record;
  params.from = whole_of(Operation::dispatch);
  params.chunk_counts = state_.memory()->as<std::uint32_t>(state_.state_plan().message_counts);
  params.to = out.handle;
  params.bytes = left_bytes_;
  launch_shorten(params, state_.most_small_blocks(), state_.stream());
}

}  // namespace ferry::cuda
