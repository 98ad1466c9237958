#include "cuda/exchange/launches/count_calls.h"

#include <algorithm>
#include <vector>

#include "cuda/device/refuse.h"
#include "exchange/sizes/row_counts.h"
#include "ferry/detail/protocol/contracts/handle.h"

namespace ferry::cuda {
namespace {

// Outputs that the host would refuse if it could read a handle of a dispatch by counts (check_counts_output).
bool tells_of_ids(const RowsOut& out) {
  return out.order == RowOrder::by_source &&
         (out.counts != nullptr || out.row_topk_ids != nullptr || out.row_topk_weights != nullptr ||
          out.source_starts != nullptr || out.messages != nullptr || out.cumulative_counts != nullptr);
}

}  // namespace

CountCalls::CountCalls(const ExchangeState& state)
    : state_(state), box_(state.plan()), ids_(state.memory()->as<std::int32_t>(state.state_plan().destination_ids)) {}

void CountCalls::give(DispatchArgs& args) const {
  auto params = state_.params_of<GiveCountsParams>(state_.masks().newest());
  params.counts = args.expert_counts;
  params.in_rank = args.in_rank;
  params.num_tokens = args.num_tokens;
  params.ids = ids_;
  params.bytes = state_.counters().bytes;
  if (args.in_rank != nullptr) args.ids = {ids_, false};
  state_.kernels().small.give_counts(params, state_.most_small_blocks(), state_.stream());
}

// With a handle only from the first one on that a dispatch by counts has left (LeftHandles).
void CountCalls::take(const Ticket& ticket, const RowsOut& out) const {
  const bool has_handle = ticket.handle != nullptr;
  const bool may_be_by_counts = has_handle ? state_.device().left_handles->by_counts : ticket.by_counts;
  if (!may_be_by_counts || (has_handle && !tells_of_ids(out))) return;
  auto params = state_.local_params_of<TakeCountsParams>(state_.opened_mask());
  params.record = state_.links().record;
  params.counts = out.counts;
  if (has_handle) params.replayed = kept_routing_at(state_.plan(), ticket.handle).header;
  launch_take_counts(params, state_.stream());
}

void CountCalls::tell_excess(const Ticket& ticket) const {
  auto params = state_.params_of<ExcessParams>(state_.masks().newest());
  params.num_tokens = static_cast<std::uint32_t>(ticket.num_tokens);
  state_.kernels().small.tell_excess(params, state_.stream());
}

bool CountCalls::ask(const Ticket& ticket) {
  auto params = state_.params_of<CountParams>(state_.opened_mask());
  params.order = ticket.rows.order;
  params.shared_rows = ticket.shared.end - ticket.shared.begin;
  params.by_counts = ticket.by_counts && ticket.handle == nullptr;
  if (ticket.handle != nullptr) params.replayed = kept_routing_at(state_.plan(), ticket.handle).header;
  box_.ask(params);
  state_.kernels().small.count(params, state_.stream());
  return box_.await(state_.record(), state_.stream());
}

std::optional<DispatchRefused> CountCalls::refusal(const Ticket& ticket) const {
  if (const ExcessTokens excess = box_.excess(); excess.rank >= 0)
    return DispatchRefused::too_many_tokens(state_.rank(), excess.rank, excess.tokens, state_.plan().shape.max_tokens);
  if (const int other = box_.other_input(); other >= 0 && ticket.handle == nullptr)
    return DispatchRefused::counts_differ(state_.rank(), ticket.by_counts, other);
  return {};
}

DispatchRefused CountCalls::refusal_of(Epoch routing) const {
  const Shape& shape = state_.plan().shape;
  std::vector<RoutingHeader> headers(static_cast<std::size_t>(shape.ranks));
  state_.read_heap(state_.plan().map.header(routing, 0), headers.data(), headers.size() * sizeof headers[0]);
  const auto found = std::find_if(headers.begin(), headers.end(),
                                  [&](const RoutingHeader& each) { return each.excess_routing == routing; });
  if (found == headers.end())
    refuse(ErrorKind::system, state_.rank(), "a dispatch was refused, and no rank says that it had too many tokens");
  return DispatchRefused::too_many_tokens(state_.rank(), static_cast<int>(found - headers.begin()),
                                          found->excess_tokens, shape.max_tokens);
}

// Padded groups lie at their stride, whatever came.
RowCounts CountCalls::row_counts(const Ticket& ticket) const {
  const Plan& plan = state_.plan();
  RowCounts counts = counts_of(plan, {ticket.rows.order, box_.starts(plan), box_.source_offsets(plan)});
  if (ticket.rows.order == RowOrder::padded) counts.rows = plan.groups() * ticket.rows.expert_stride;
  if (!box_.is_by_counts()) return counts;
  counts.by_expert.clear();  // of a handle: no table says which experts
  if (ticket.handle == nullptr) counts.by_expert = box_.given_counts(plan);
  return counts;
}

}  // namespace ferry::cuda
