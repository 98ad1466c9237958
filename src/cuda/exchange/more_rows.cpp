// CudaSteps: what a dispatch enqueues where its caller asked for outputs beside the usual ones, and what the host
// learns where it left usual ones out.
#include "cuda/exchange/cuda_steps.h"
#include "ferry/detail/cuda/state/cuda_check.h"
#include "ferry/detail/protocol/handle.h"

namespace ferry::cuda {
namespace {

bool has_facts(const RowsOut& out) {
  return out.row_weights != nullptr || out.row_sources != nullptr || out.row_scales.data != nullptr ||
         out.global_scales != nullptr;
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

void CudaSteps::note_waiting_times(const RowsOut& out) {
  if (out.waited_ns == nullptr) return;
  streams_.follow(stream_);
  const std::size_t bytes = static_cast<std::size_t>(plan_.shape.ranks) * sizeof(std::uint64_t);
  cuda_check(cudaMemcpyAsync(waited_before_, links_.waited_ns, bytes, cudaMemcpyDefault, stream_), "cudaMemcpyAsync");
}

void CudaSteps::write_asked_rows(const Ticket& ticket, const RowsOut& out) const {
  MoreRowsParams params;
  params.writes_facts = has_facts(out);
  params.writes_padding = has_padding(out);
  const bool writes_rows = params.writes_facts || params.writes_padding || has_counts(out);
  if (!writes_rows && !has_messages(out)) return;
  params.plan = plan_;
  params.plan.masked = open_mask_;
  params.state = links_.state;
  params.heap = links_.own;
  params.starts = arrived_.starts;
  params.out = out;
  if (ticket.handle != nullptr && !plan_.map.has_late_weights())
    params.kept = kept_routing_at(plan_, ticket.handle).rows;
  params.shared_begin = ticket.shared.begin;
  params.global_scale_at = now().global_scale_at;
  params.message_counts = message_counts_;
  params.waited_ns = links_.waited_ns;
  params.waited_before = waited_before_;
  params.arrived = arrived_;
  if (ticket.overflow == Overflow::reported) params.record = links_.record;
  const int most_blocks = now().kernel_plan.most_small_blocks(max_blocks_);
  if (writes_rows) launch_more_rows(params, most_blocks, stream_);
  if (has_messages(out)) launch_messages(params, most_blocks, stream_);
  if (out.may_overflow) launch_forget_rows(params, most_blocks, stream_);
}

std::uint32_t CudaSteps::laid_out_rows(cudaStream_t stream) const {
  std::uint32_t rows = 0;
  cuda_check(
      cudaMemcpyAsync(&rows, arrived_.starts.group + plan_.groups(), sizeof rows, cudaMemcpyDeviceToHost, stream),
      "cudaMemcpyAsync");
  cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return rows;
}

// Given counts come last: they stand in place of counts of rows.
void CudaSteps::write_more_rows(const Ticket& ticket, const RowsOut& out) const {
  write_asked_rows(ticket, out);
  if (ticket.handle == nullptr ? ticket.by_counts : device_.left_handles->by_counts) take_counts(ticket, out);
}

void CudaSteps::note_overflow(const RowsOut& out) {
  may_have_overflowed_ = out.may_overflow;
  if (out.may_overflow && capture_of(stream_) != kNoCapture) graphs_may_overflow_ = true;
}

bool CudaSteps::may_lack_rows(const Ticket& ticket) const {
  if (ticket.handle != nullptr) return device_.left_handles->may_lack_rows;
  return may_have_overflowed_ || graphs_may_overflow_;
}

void CudaSteps::send_zero_results(const Ticket& ticket) const {
  if (!may_lack_rows(ticket)) return;
  ZeroResultsParams params;
  params.plan = plan_;
  params.links = links_;
  params.plan.masked = params.links.masked = ticket.handle != nullptr ? masks_.newest() : open_mask_;
  params.arrived = arrived_of(ticket);
  params.kept = kept_rows_of(ticket);
  params.bytes = stats_.bytes;
  params.is_extra = is_extra_;
  now().kernels.small.send_zeros(params, now().kernel_plan.most_small_blocks(max_blocks_), stream_);
}

}  // namespace ferry::cuda
