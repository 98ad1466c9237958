// Sizes and refusals, all before anything is allocated.
#include "exchange/sizes.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <string>

#include "exchange/row_order_rules.h"
#include "ferry/detail/formats/format_check.h"
#include "ferry/detail/layout/result_layout.h"
#include "ferry/detail/protocol/handle.h"

namespace ferry {
namespace {

void refuse(const std::string& message) { throw Error(ErrorKind::invalid_argument, message); }

ScaleLayout layout_of(const ExchangeOptions& options) {
  return options.tiled_scales ? ScaleLayout::tiled : options.format.scale_layout();
}

// The largest piece of memory whose bytes are counted by 32 bits. Row starts are three words for each group, and one
// for each local expert of each source (row_start_words).
std::uint64_t largest_piece(const Shape& shape, const ExchangeOptions& o) {
  const Shape seen = local_view(shape, o, 0).shape;
  const auto groups = static_cast<std::uint64_t>(max_local_experts(seen)) + 1;
  const std::uint64_t row_starts = 4 * ((static_cast<std::uint64_t>(seen.ranks) + 3) * groups + 2);
  return std::max<std::uint64_t>({HeapMap::whole_lines(message_bytes(o.format, shape.hidden)),
                                  result_layout(o.result_format, shape.hidden).bytes, row_starts});
}

// What HeapMap counts by 32 bits: rows, and so slots, and the bytes of a piece.
void require_addressable(const Shape& shape, const ExchangeOptions& o) {
  const std::uint64_t largest = largest_piece(shape, o);
  if (largest > UINT32_MAX)
    refuse(
        fmt::format("impossible shape: a message, a result or a rank's counts would have {} bytes; the limit is "
                    "4294967295 (got {})",
                    largest, to_string(shape)));
  const RowLayout layout = row_layout(shape, o, 0);
  if (!std::has_single_bit(static_cast<unsigned>(layout.alignment)))
    refuse(fmt::format("format {} aligns an expert's rows to {}; it must be a power of two", o.format.name(),
                       layout.alignment));
  if (layout.min_row_capacity > INT32_MAX)
    refuse(fmt::format("impossible shape: a rank could get {} rows; the limit is 2147483647 (got {})",
                       layout.min_row_capacity, to_string(shape)));
}

}  // namespace

void require_valid(const Shape& shape, const ExchangeOptions& o) {
  require_valid(shape);
  if (const std::string why = why_invalid(o.format); !why.empty()) refuse(why);
  if (const std::string why = why_invalid(o.result_format); !why.empty()) refuse("result_format: " + why);
  if (o.tiled_scales && (o.format.scale_bytes() != 1 || o.format.block() != 32) &&
      o.format.scale_layout() != ScaleLayout::tiled)
    refuse(fmt::format("tiled_scales needs one-byte scales of 32 columns (mxfp8); the format is {}", o.format.name()));
  if (o.dynamic_scales && o.format.name() != std::string_view("nvfp4"))
    refuse(fmt::format("dynamic_scales is on; only nvfp4 has a global scale, and the format is {}", o.format.name()));
  const int alignment = o.expert_alignment;
  if (alignment < 0 || alignment > 128 || alignment == 2 ||
      (alignment != 0 && !std::has_single_bit(static_cast<unsigned>(alignment))))
    refuse(fmt::format("expert_alignment is {}; it must be 0 (the format's), 1, 4, 8, 16, 32, 64 or 128", alignment));
  if (o.allreduce_world_size < 1)
    refuse(fmt::format("allreduce_world_size is {}; it must be at least 1", o.allreduce_world_size));
  if (o.allreduce_world_size > 1 && !o.skip_a2a)
    refuse(fmt::format("allreduce_world_size is {}; it has a meaning with skip_a2a only", o.allreduce_world_size));
  if (o.skip_a2a && o.fused_shared_expert && o.allreduce_world_size < shape.ranks)
    refuse(
        fmt::format("allreduce_world_size is {}; with skip_a2a and a fused shared expert it must be at least ranks, {}",
                    o.allreduce_world_size, shape.ranks));
  if (o.concurrent < 1) refuse(fmt::format("concurrent is {}; it must be at least 1", o.concurrent));
  if (o.reserve_sms < 0) refuse(fmt::format("reserve_sms is {}; it must be 0 or more", o.reserve_sms));
  if (o.workers < 1 || o.workers > 1024) refuse(fmt::format("workers is {}; it must be 1 to 1024", o.workers));
  if (o.deadline.count() < 1 || o.deadline > kMaxDeadline)
    refuse(fmt::format("deadline is {} ms; it must be 1 to {}", o.deadline.count(), kMaxDeadline.count()));
  if (o.set_up_deadline.count() < 0 || o.set_up_deadline > kMaxDeadline)
    refuse(fmt::format("set_up_deadline is {} ms; it must be 0 (the deadline, but at least 30 s) or up to {}",
                       o.set_up_deadline.count(), kMaxDeadline.count()));
  if (o.mask.size() > static_cast<std::size_t>(shape.ranks))
    refuse(fmt::format("mask has {} entries; there are {} ranks", o.mask.size(), shape.ranks));
  if (o.late_weights && o.reduction == Reduction::exact)
    refuse("late_weights is on; reduction exact takes its weights at combine as it is, and they do not travel");
  require_valid_orders(o);
  require_addressable(shape, o);
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

std::size_t global_scale_at(const ExchangeOptions& options, int hidden) {
  return options.dynamic_scales ? result_layout(options.format, hidden).row_scale : 0;
}

HeapMap make_heap_map(const Shape& shape, const ExchangeOptions& options, int rank, bool has_remote_ranks) {
  HeapShape heap;
  heap.shape = local_view(shape, options, rank).shape;
  heap.max_local = max_local_experts(heap.shape);
  heap.message = options.dynamic_scales ? result_layout(options.format, shape.hidden).bytes
                                        : message_bytes(options.format, shape.hidden);
  heap.exact = options.reduction == Reduction::exact;
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

RowLayout row_layout(const Shape& shape, const ExchangeOptions& options, int rank) {
  require_valid(shape);
  if (rank < 0 || rank >= shape.ranks)
    refuse(fmt::format("row_layout: rank is {}; there are {} ranks", rank, shape.ranks));
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

MemoryUse memory_use(const Shape& shape, const ExchangeOptions& options, bool has_remote_ranks) {
  require_valid(shape, options);
  const HeapMap map = make_heap_map(shape, options, 0, has_remote_ranks);
  MemoryUse use;
  for (int index = 0; index < HeapMap::kRegions; ++index) {
    const auto region = static_cast<HeapMap::Region>(index);
    if (map.region_bytes(region) != 0) use.regions.push_back({HeapMap::region_name(region), map.region_bytes(region)});
  }
  use.total = map.total();
  return use;
}

}  // namespace ferry
