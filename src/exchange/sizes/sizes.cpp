#include "exchange/sizes/sizes.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

#include "exchange/sizes/refuse_invalid.h"
#include "ferry/detail/layout/result_layout.h"
#include "ferry/detail/protocol/contracts/handle.h"

namespace ferry {
namespace {

ScaleLayout layout_of(const ExchangeOptions& options) {
  return options.tiled_scales ? ScaleLayout::tiled : options.format.scale_layout();
}

std::size_t bytes_of_message(const AnyFormat& format, bool dynamic_scales, int hidden) {
  return dynamic_scales ? result_layout(format, hidden).bytes : message_bytes(format, hidden);
}

}  // namespace

ExchangeOptions options_in(const ExchangeOptions& options, int format) {
  ExchangeOptions own = options;
  if (format == 0) return own;
  DispatchFormat& other = own.more_formats[static_cast<std::size_t>(format) - 1];
  std::swap(own.format, other.format);
  std::swap(own.tiled_scales, other.tiled_scales);
  std::swap(own.expert_alignment, other.expert_alignment);
  std::swap(own.dynamic_scales, other.dynamic_scales);
  return own;
}

std::chrono::milliseconds set_up_deadline(const ExchangeOptions& options) {
  return options.set_up_deadline.count() > 0 ? options.set_up_deadline : std::max(options.deadline, kDefaultDeadline);
}

LocalView local_view(const Shape& shape, const ExchangeOptions& options, int rank) {
  if (!options.skip_a2a) return {shape, rank, 0};
  LocalView view{shape, 0, first_expert(shape, rank)};
  view.shape.ranks = 1;
  view.shape.experts = num_local_experts(shape, rank);
  return view;
}

std::uint64_t row_bytes(const RowLayout& layout, const AnyFormat& format) {
  return static_cast<std::uint64_t>(layout.payload_row_bytes) +
         static_cast<std::uint64_t>(layout.scales_per_row) * static_cast<std::uint64_t>(format.scale_bytes());
}

std::vector<std::uint64_t> row_bytes_in(const Shape& shape, const ExchangeOptions& options, int rank) {
  std::vector<std::uint64_t> all;
  for (int format = 0; format < num_formats(options); ++format)
    all.push_back(row_bytes(row_layout(shape, options, rank, format), options_in(options, format).format));
  return all;
}

std::size_t global_scale_at(const ExchangeOptions& options, int hidden) {
  return options.dynamic_scales ? result_layout(options.format, hidden).row_scale : 0;
}

bool uses_input_scale(const ExchangeOptions& options) {
  return options.format.takes_input_scale() && !options.dynamic_scales;
}

HeapMap make_heap_map(const Shape& shape, const ExchangeOptions& options, int rank, bool has_remote_ranks) {
  HeapShape heap;
  heap.shape = local_view(shape, options, rank).shape;
  heap.max_local = max_local_experts(heap.shape);
  heap.message = bytes_of_message(options.format, options.dynamic_scales, shape.hidden);
  heap.most_message = heap.message;
  for (const DispatchFormat& other : options.more_formats)
    heap.most_message = std::max(heap.most_message, bytes_of_message(other.format, other.dynamic_scales, shape.hidden));
  for (int format = 0; format < num_formats(options); ++format)
    heap.has_input_scales = heap.has_input_scales || uses_input_scale(options_in(options, format));
  heap.message_copies = options.message_copies;
  heap.exact = options.reduction != Reduction::by_rank;
  heap.may_sum = options.reduction == Reduction::either;
  heap.has_remote_ranks = has_remote_ranks;
  heap.has_token_lists = options.row_orders.has(RowOrder::by_source);
  heap.has_late_weights = options.late_weights;
  heap.returns_weights = options.returns_weights;
  heap.result = result_layout(options.result_format, shape.hidden).bytes;
  return HeapMap(heap);
}

TokenRange shared_tokens(const ExchangeOptions& options, int rank, int num_tokens) {
  if (!options.fused_shared_expert) return {0, 0};
  if (!options.skip_a2a) return {0, num_tokens};
  const int world = options.allreduce_world_size;
  const int begin = rank * (num_tokens / world) + std::min(rank, num_tokens % world);
  return {begin, begin + (num_tokens + world - rank - 1) / world};
}

RowLayout row_layout(const Shape& shape, const ExchangeOptions& options, int rank, int format) {
  require_valid(shape);
  if (format < 0 || format >= num_formats(options))
    refuse_invalid(fmt::format("row_layout: format is {}; there are {} formats", format, num_formats(options)));
  if (format != 0) return row_layout(shape, options_in(options, format), rank);
  if (rank < 0 || rank >= shape.ranks)
    refuse_invalid(fmt::format("row_layout: rank is {}; there are {} ranks", rank, shape.ranks));
  const LocalView view = local_view(shape, options, rank);
  const Shape& seen = view.shape;
  const int local = num_local_experts(seen, view.rank);
  RowLayout layout;
  layout.groups = local + (options.fused_shared_expert ? 1 : 0);
  layout.alignment = options.expert_alignment == 0 ? options.format.alignment() : options.expert_alignment;
  layout.min_row_capacity = std::int64_t{seen.ranks} * seen.max_tokens * std::min(seen.top_k, local) +
                            (options.fused_shared_expert ? seen.max_tokens : 0) +
                            std::int64_t{layout.groups} * (layout.alignment - 1);
  layout.payload_row_bytes = static_cast<std::int64_t>(options.format.payload_bytes(shape.hidden));
  layout.scale_layout = layout_of(options);
  layout.scales_per_row = scales_per_row(options.format, shape.hidden);
  layout.scale_dtype = options.format.scale_bytes() == 0   ? DType::none
                       : options.format.scale_bytes() == 4 ? DType::f32
                                                           : DType::u8;
  layout.hidden = shape.hidden;
  layout.expert_rows = std::int64_t{seen.ranks} * seen.max_tokens;
  layout.sources = seen.ranks;
  layout.top_k = seen.top_k;
  layout.has_global_scales = options.dynamic_scales;
  layout.handle_bytes = static_cast<std::int64_t>(
      HandleSizes(seen.ranks, seen.max_tokens, seen.top_k, local, options.fused_shared_expert ? 1 : 0).bytes());
  return layout;
}

}  // namespace ferry
