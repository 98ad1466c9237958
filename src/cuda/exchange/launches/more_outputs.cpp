#include "cuda/exchange/launches/more_outputs.h"

#include "ferry/detail/cuda/state/cuda_check.h"
#include "ferry/detail/protocol/contracts/handle.h"

namespace ferry::cuda {
namespace {

bool has_facts(const RowsOut& out) {
  return out.row_weights != nullptr || out.row_sources != nullptr || out.row_scales.data != nullptr ||
         out.global_scales.are_given();
}

// A dispatch leaves rows past the end of a padded group, and past the last row by_source, as they were, unless the
// caller wants zeros.
bool has_padding(const RowsOut& out) {
  const bool is_marked = out.order == RowOrder::by_expert || out.order == RowOrder::in_place;
  return out.zeroes_padding || (is_marked && has_facts(out));
}

// The kernels that lay out rows padded or by_source write counts themselves, where all rows have room.
bool has_counts(const RowsOut& out) {
  const bool is_usual = out.order == RowOrder::by_source || out.order == RowOrder::padded;
  return out.may_overflow || (out.counts != nullptr && !is_usual) || out.source_starts != nullptr ||
         out.cumulative_counts != nullptr || out.waited_ns != nullptr || out.overflow != nullptr;
}

bool has_messages(const RowsOut& out) {
  return out.messages != nullptr || (out.source_offsets != nullptr && out.order != RowOrder::by_source);
}

}  // namespace

MoreOutputs::MoreOutputs(const ExchangeState& state)
    : state_(state),
      waited_before_(state.memory()->as<std::uint64_t>(state.state_plan().waited_before)),
      waited_before_sums_(state.memory()->as<std::uint64_t>(state.state_plan().waited_before_sums)),
      message_counts_(state.memory()->as<std::uint32_t>(state.state_plan().message_counts)) {}

void MoreOutputs::copy_waits(std::uint64_t* to) const {
  const std::size_t bytes = static_cast<std::size_t>(state_.plan().shape.ranks) * sizeof(std::uint64_t);
  cuda_check(cudaMemcpyAsync(to, state_.links().waited_ns, bytes, cudaMemcpyDefault, state_.stream()),
             "cudaMemcpyAsync");
}

void MoreOutputs::note_waiting_times(const RowsOut& out) const {
  if (out.waited_ns != nullptr) copy_waits(waited_before_);
}

void MoreOutputs::note_waits_for_results(const CombineOut& out) const {
  if (out.waited_ns != nullptr) copy_waits(waited_before_sums_);
}

void MoreOutputs::add_waits_for_results(const CombineOut& out, bool is_extra) const {
  if (out.waited_ns == nullptr) return;
  launch_add_waits({state_.links().state, state_.links().waited_ns, waited_before_sums_, out.waited_ns,
                    state_.plan().shape.ranks, is_extra},
                   state_.stream());
}

void MoreOutputs::add_rows(const Ticket& ticket, const RowsOut& out, FinishParams& left) const {
  const Plan& plan = state_.plan();
  left.has_rows = has_facts(out) || has_padding(out) || has_counts(out);
  if (!left.has_rows && !has_messages(out)) return;
  MoreRowsParams& params = left.rows;
  params = state_.local_params_of<MoreRowsParams>(state_.opened_mask());
  params.writes_facts = has_facts(out);
  params.writes_padding = has_padding(out);
  params.starts = state_.arrived().starts;
  params.out = out;
  if (ticket.handle != nullptr && !plan.map.has_late_weights()) params.kept = kept_routing_at(plan, ticket.handle).rows;
  params.shared_begin = ticket.shared.begin;
  params.global_scale_at = state_.format().global_scale_at;
  params.message_counts = message_counts_;
  params.waited_ns = state_.links().waited_ns;
  params.waited_before = waited_before_;
  params.arrived = state_.arrived();
  if (ticket.overflow == Overflow::reported) params.record = state_.links().record;
}

void MoreOutputs::launch_last(const RowsOut& out, const FinishParams& left) const {
  const int most_blocks = state_.most_small_blocks();
  if (has_messages(out)) launch_messages(left.rows, most_blocks, state_.stream());
  if (out.may_overflow) launch_forget_rows(left.rows, most_blocks, state_.stream());
}

std::uint32_t MoreOutputs::laid_out_rows(cudaStream_t stream) const {
  std::uint32_t rows = 0;
  cuda_check(cudaMemcpyAsync(&rows, state_.arrived().starts.group + state_.plan().groups(), sizeof rows,
                             cudaMemcpyDeviceToHost, stream),
             "cudaMemcpyAsync");
  cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return rows;
}

}  // namespace ferry::cuda
