#include "exchange/checks/valid_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <string>

#include "base/deadline.h"
#include "exchange/checks/row_order_rules.h"
#include "exchange/sizes/refuse_invalid.h"
#include "exchange/sizes/sizes.h"
#include "ferry/detail/formats/format_check.h"
#include "ferry/detail/layout/result_layout.h"

namespace ferry {
namespace {

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
    refuse_invalid(
        fmt::format("impossible shape: a message, a result or a rank's counts would have {} bytes; the limit is "
                    "4294967295 (got {})",
                    largest, to_string(shape)));
  const RowLayout layout = row_layout(shape, o, 0);
  if (!std::has_single_bit(static_cast<unsigned>(layout.alignment)))
    refuse_invalid(fmt::format("format {} aligns an expert's rows to {}; it must be a power of two", o.format.name(),
                               layout.alignment));
  if (layout.min_row_capacity > INT32_MAX)
    refuse_invalid(fmt::format("impossible shape: a rank could get {} rows; the limit is 2147483647 (got {})",
                               layout.min_row_capacity, to_string(shape)));
  if (const std::int64_t slots = o.message_copies * layout.expert_rows; o.message_copies > 2 && slots > INT32_MAX)
    refuse_invalid(fmt::format("message_copies is {}: {} slots for messages; the limit is 2147483647 (got {})",
                               o.message_copies, slots, to_string(shape)));
}

// The exchange's own format.
void require_valid_format(const ExchangeOptions& o) {
  if (const std::string why = why_invalid(o.format); !why.empty()) refuse_invalid(why);
  if (o.tiled_scales && (o.format.scale_bytes() != 1 || o.format.block() != 32) &&
      o.format.scale_layout() != ScaleLayout::tiled)
    refuse_invalid(
        fmt::format("tiled_scales needs one-byte scales of 32 columns (mxfp8); the format is {}", o.format.name()));
  if (o.dynamic_scales && o.format.name() != std::string_view("nvfp4"))
    refuse_invalid(
        fmt::format("dynamic_scales is on; only nvfp4 has a global scale, and the format is {}", o.format.name()));
  const int alignment = o.expert_alignment;
  if (alignment < 0 || alignment > 128 || alignment == 2 ||
      (alignment != 0 && !std::has_single_bit(static_cast<unsigned>(alignment))))
    refuse_invalid(
        fmt::format("expert_alignment is {}; it must be 0 (the format's), 1, 4, 8, 16, 32, 64 or 128", alignment));
}

void require_valid_formats(const Shape& shape, const ExchangeOptions& options) {
  if (num_formats(options) > kMostFormats)
    refuse_invalid(fmt::format("more_formats has {} formats; an exchange has at most {} with its own",
                               options.more_formats.size(), kMostFormats));
  for (int format = 0; format < num_formats(options); ++format) {
    try {
      const ExchangeOptions in_format = options_in(options, format);
      require_valid_format(in_format);
      require_addressable(shape, in_format);
    } catch (const Error& error) {
      if (format == 0) throw;
      refuse_invalid(fmt::format("more_formats[{}]: {}", format - 1, error.what()));
    }
  }
}

}  // namespace

void require_valid(const Shape& shape, const ExchangeOptions& o) {
  require_valid(shape);
  if (const std::string why = why_invalid(o.result_format); !why.empty()) refuse_invalid("result_format: " + why);
  if (const std::string why = why_without_values(o.result_format); !why.empty())
    refuse_invalid("result_format: " + why);
  if (o.allreduce_world_size < 1)
    refuse_invalid(fmt::format("allreduce_world_size is {}; it must be at least 1", o.allreduce_world_size));
  if (o.allreduce_world_size > 1 && !o.skip_a2a)
    refuse_invalid(
        fmt::format("allreduce_world_size is {}; it has a meaning with skip_a2a only", o.allreduce_world_size));
  if (o.skip_a2a && o.fused_shared_expert && o.allreduce_world_size < shape.ranks)
    refuse_invalid(
        fmt::format("allreduce_world_size is {}; with skip_a2a and a fused shared expert it must be at least ranks, {}",
                    o.allreduce_world_size, shape.ranks));
  if (o.message_copies != 2 && o.message_copies != 4)
    refuse_invalid(fmt::format("message_copies is {}; it must be 2 or 4", o.message_copies));
  if (o.concurrent < 1) refuse_invalid(fmt::format("concurrent is {}; it must be at least 1", o.concurrent));
  if (o.gpu.reserve_sms < 0) refuse_invalid(fmt::format("reserve_sms is {}; it must be 0 or more", o.gpu.reserve_sms));
  if (o.workers < 1 || o.workers > 1024) refuse_invalid(fmt::format("workers is {}; it must be 1 to 1024", o.workers));
  if (o.deadline.count() < 1 || o.deadline > kMaxDeadline)
    refuse_invalid(fmt::format("deadline is {} ms; it must be 1 to {}", o.deadline.count(), kMaxDeadline.count()));
  if (o.set_up_deadline.count() < 0 || o.set_up_deadline > kMaxDeadline)
    refuse_invalid(fmt::format("set_up_deadline is {} ms; it must be 0 (the deadline, but at least 30 s) or up to {}",
                               o.set_up_deadline.count(), kMaxDeadline.count()));
  if (o.mask.size() > static_cast<std::size_t>(shape.ranks))
    refuse_invalid(fmt::format("mask has {} entries; there are {} ranks", o.mask.size(), shape.ranks));
  if (o.late_weights && o.reduction != Reduction::by_rank)
    refuse_invalid(
        fmt::format("late_weights is on, and reduction is {}; exact takes its weights at combine as it is, and they "
                    "do not travel",
                    to_string(o.reduction)));
  require_valid_orders(o);
  require_valid_formats(shape, o);
}

}  // namespace ferry
