#include "tool/bench/base/bench_given.h"

namespace ferry::app {

void encode_tokens(const BenchCase& bench, const RowLayout& layout, const std::byte* bf16, std::byte* payload,
                   std::byte* scales) {
  const std::size_t scale_row = static_cast<std::size_t>(layout.scales_per_row) * size_of(layout.scale_dtype);
  const int hidden = bench.shape.hidden;
  for (int token = 0; token < bench.shape.max_tokens; ++token) {
    const auto at = static_cast<std::size_t>(token);
    bench.format.encode(SerialGroup{}, {bf16 + at * static_cast<std::size_t>(hidden) * 2, DType::bf16}, hidden, 1.0f,
                        payload + at * static_cast<std::size_t>(layout.payload_row_bytes), scales + at * scale_row);
  }
}

void give_encoded(DispatchInput& in, const RowLayout& layout, std::int64_t n, const std::byte* payload,
                  const std::byte* scales) {
  in.tokens = ConstTensor(payload, DType::u8, {n, layout.payload_row_bytes});
  if (layout.scales_per_row > 0) in.token_scales = ConstTensor(scales, layout.scale_dtype, {n, layout.scales_per_row});
}

void give_handle(DispatchInput& in, DispatchOutput& out, CombineInput& rows) {
  in.handle = rows.handle = out.handle;
  in.topk_ids = in.topk_weights = {};
  out.handle = {};
}

}  // namespace ferry::app
