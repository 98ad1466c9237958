#include "tool/layer/rank/given_tokens.h"

#include <cstring>

#include "tool/io/bfloat16.h"
#include "tool/layer/base/area.h"

namespace ferry::app {
namespace {

std::int64_t scale_row_bytes(const RowLayout& layout) {
  return layout.scales_per_row * static_cast<std::int64_t>(size_of(layout.scale_dtype));
}

}  // namespace

GivenTokens::GivenTokens(const RowLayout& layout, const Shape& shape, const LayerOptions& options)
    : options_(options), layout_(layout), tokens_(area(shape.max_tokens, shape.hidden * 2)) {
  if (!options.encoded) return;
  payload_ = Pages(area(shape.max_tokens, layout.payload_row_bytes));
  scales_ = Pages(area(shape.max_tokens, scale_row_bytes(layout)));
  one_payload_ = Pages(static_cast<std::size_t>(layout.payload_row_bytes));
  one_scales_ = Pages(static_cast<std::size_t>(scale_row_bytes(layout)));
}

void GivenTokens::take(const float* x, std::int64_t count) {
  count_ = count;
  to_bf16(x, tokens_.as<Bf16>(), area(count, layout_.hidden));
  if (!options_.encoded) return;
  for (std::int64_t token = 0; token < count; ++token) encode(token);
}

void GivenTokens::encode(std::int64_t token) {
  const InputRow source{tokens_.as<std::byte>() + area(token, layout_.hidden * 2), DType::bf16};
  non_finite_blocks_ += static_cast<std::uint64_t>(options_.format.encode(
      SerialGroup{}, source, layout_.hidden, options_.input_scale, one_payload_.data(), one_scales_.data()));
  std::memcpy(payload_.as<std::byte>() + area(token, layout_.payload_row_bytes), one_payload_.data(),
              one_payload_.bytes());
  if (one_scales_.bytes() != 0)
    std::memcpy(scales_.as<std::byte>() + area(token, scale_row_bytes(layout_)), one_scales_.data(),
                one_scales_.bytes());
}

void GivenTokens::give(DispatchInput& in) const {
  if (!options_.encoded) {
    in.tokens = ConstTensor(tokens_.data(), DType::bf16, {count_, layout_.hidden});
    return;
  }
  in.tokens = ConstTensor(payload_.data(), DType::u8, {count_, layout_.payload_row_bytes});
  if (layout_.scales_per_row > 0)
    in.token_scales = ConstTensor(scales_.data(), layout_.scale_dtype, {count_, layout_.scales_per_row});
}

std::uint64_t GivenTokens::bytes(const RowLayout& layout, bool encoded, std::uint64_t tokens) {
  const std::int64_t row =
      2 * std::int64_t{layout.hidden} + (encoded ? layout.payload_row_bytes + scale_row_bytes(layout) : 0);
  return tokens * static_cast<std::uint64_t>(row);
}

}  // namespace ferry::app
