// Tokens that are FP8 already: codes and scales go in as they are, and the rows are those that Ferry would have
// encoded.
#include <ferry/ferry.h>

#include <algorithm>
#include <cstdio>
#include <vector>

namespace {

using namespace ferry;

constexpr int kRanks = 2, kTopK = 2, kTokens = 3, kHidden = 256;
constexpr Shape kShape{.ranks = kRanks, .experts = 4, .top_k = kTopK, .max_tokens = kTokens, .hidden = kHidden};

std::vector<float> all_rows(const HostRows& rows) {
  std::vector<float> all;
  rows.for_each_row([&](int, std::int64_t row) {
    for (const float value : rows.values(row)) all.push_back(value);
  });
  return all;
}

}  // namespace

int main() {
  std::vector<int> right(kRanks);
  run_ranks(kRanks, [&](World& world) {
    Exchange exchange(world, kShape, {.format = format_named("fp8_block128")});
    HostRows rows(exchange), expected(exchange);
    std::vector<float> tokens(kTokens * kHidden), weights(kTokens * kTopK, 0.5f), sums(kTokens * kHidden);
    std::vector<std::int32_t> ids = {0, 3, 1, 2, 2, 0};
    for (int i = 0; i < kTokens * kHidden; ++i) tokens[i] = float(i % 37 - 18) * float(1 + world.rank());

    const AnyFormat format = format_named("fp8_block128");
    const RowLayout& layout = exchange.layout();
    std::vector<std::byte> codes(kTokens * layout.payload_row_bytes);
    std::vector<float> scales(kTokens * layout.scales_per_row);
    for (int token = 0; token < kTokens; ++token)
      format.encode(SerialGroup{}, {&tokens[token * kHidden], DType::f32}, kHidden, 1.0f,
                    &codes[token * layout.payload_row_bytes],
                    reinterpret_cast<std::byte*>(&scales[token * layout.scales_per_row]));
    exchange.dispatch({.tokens = {codes.data(), DType::u8, {kTokens, layout.payload_row_bytes}},
                       .topk_ids = {ids.data(), DType::i32, {kTokens, kTopK}},
                       .topk_weights = {weights.data(), DType::f32, {kTokens, kTopK}},
                       .token_scales = {scales.data(), DType::f32, {kTokens, layout.scales_per_row}}},
                      rows.arrivals());

    rows.for_each_row([&](int, std::int64_t row) {  // here every expert gives its rows back
      const std::vector<float> values = rows.values(row);
      for (std::size_t column = 0; column < values.size(); ++column) rows.result(row)[column] = values[column];
    });
    exchange.combine(rows.results(), {.tokens = {sums.data(), DType::f32, {kTokens, kHidden}}});
    exchange.dispatch({.tokens = {tokens.data(), DType::f32, {kTokens, kHidden}},
                       .topk_ids = {ids.data(), DType::i32, {kTokens, kTopK}},
                       .topk_weights = {weights.data(), DType::f32, {kTokens, kTopK}}},
                      expected.arrivals());
    right[world.rank()] = !all_rows(rows).empty() && all_rows(rows) == all_rows(expected);
  });
  const auto num_right = std::count(right.begin(), right.end(), 1);
  std::printf("%d of %d ranks got the rows of tokens that Ferry encodes\n", static_cast<int>(num_right), kRanks);
  return num_right == kRanks ? 0 : 1;
}
