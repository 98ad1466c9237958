// One exchange, two formats: forward in FP8, backward in bf16 by the handle that the forward dispatch left.
#include <vector>

#include "all_ranks.h"
#include "rank_memory.h"

namespace {

constexpr int kHidden = 256, kTokens = 4, kTopK = 2;
constexpr ferry::Shape kShape{.ranks = 4, .experts = 8, .top_k = kTopK, .max_tokens = kTokens, .hidden = kHidden};
constexpr int kFp8 = 0, kBf16 = 1;  // the exchange's own format, and the first of more_formats

using Values = std::vector<float>;

// A dispatch in this format and its combine. Expert x multiplies by x + 1.
Values round_in(int format, ferry::Exchange& exchange, ferry::DispatchInput in, const ferry::Tensor& kept) {
  RankMemory memory(exchange, format);
  ferry::DispatchOutput out = memory.arrivals();
  out.handle = kept;  // a replay may leave it where it was
  in.format = format;
  exchange.dispatch(in, out);

  const int first = ferry::first_expert(kShape, exchange.rank());
  memory.run_experts([&](int group, const Values& row, float* result) {
    for (std::size_t column = 0; column < row.size(); ++column)
      result[column] = row[column] * static_cast<float>(first + group + 1);
  });
  Values sums(kTokens * kHidden);
  ferry::CombineInput back = memory.results();
  back.handle = kept;
  exchange.combine(back, {.tokens = {sums.data(), ferry::DType::f32, {kTokens, kHidden}}});
  return sums;
}

bool run_rank(ferry::World& world) {
  ferry::ExchangeOptions options;
  options.format = ferry::format_named("fp8_block128");
  options.expert_alignment = 1;  // a handle passes from format to format where both align rows alike
  options.more_formats = {{.format = ferry::format_named("bf16"), .expert_alignment = 1}};
  ferry::Exchange exchange(world, kShape, options);

  std::vector<std::byte> memory(static_cast<std::size_t>(exchange.layout().handle_bytes));
  const ferry::Tensor handle{memory.data(), ferry::DType::u8, {exchange.layout().handle_bytes}};
  std::vector<std::int32_t> ids;
  for (int token = 0; token < kTokens; ++token)
    for (const int step : {0, 3}) ids.push_back((world.rank() + token + step) % kShape.experts);
  const Values tokens(kTokens * kHidden, 1.0f);
  const ferry::ConstTensor given(tokens.data(), ferry::DType::f32, {kTokens, kHidden});

  const Values forward = round_in(
      kFp8, exchange, {.tokens = given, .topk_ids = {ids.data(), ferry::DType::i32, {kTokens, kTopK}}}, handle);
  const Values backward = round_in(kBf16, exchange, {.tokens = given, .handle = handle}, handle);

  bool is_right = true;
  for (std::size_t token = 0; token < kTokens; ++token) {
    const auto factor = static_cast<float>(ids[2 * token] + 1 + ids[2 * token + 1] + 1);
    for (const Values* pass : {&forward, &backward}) {
      const float got = (*pass)[token * kHidden];
      is_right = is_right && got > 0.9f * factor && got < 1.1f * factor;  // FP8 keeps 4 bits
    }
  }
  return is_right;
}

}  // namespace

int main() { return all_ranks_right(kShape.ranks, run_rank); }
