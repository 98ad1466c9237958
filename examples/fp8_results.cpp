// FP8 both ways: tokens travel to their experts as fp8_block128, and the experts' sums travel home so, too. A residual
// is added at home, in float32, before the one rounding.
#include <cmath>
#include <vector>

#include "all_ranks.h"
#include "rank_memory.h"

namespace {

constexpr int kHidden = 256;
constexpr int kTokens = 6;  // of a rank
constexpr ferry::Shape kShape{.ranks = 4, .experts = 8, .top_k = 2, .max_tokens = kTokens, .hidden = kHidden};

using Values = std::vector<float>;

ferry::ConstTensor view(const Values& values) { return {values.data(), ferry::DType::f32, {kTokens, kHidden}}; }

bool run_rank(ferry::World& world) {
  ferry::ExchangeOptions options;
  options.format = ferry::format_named("fp8_block128");
  options.result_format = ferry::result_format_named("fp8_block128");
  ferry::Exchange exchange(world, kShape, options);
  RankMemory memory(exchange);

  Values tokens(kTokens * kHidden), residual(kTokens * kHidden), sums(kTokens * kHidden);
  for (std::size_t at = 0; at < tokens.size(); ++at) {
    tokens[at] = std::sin(static_cast<float>(at) + static_cast<float>(world.rank()));
    residual[at] = static_cast<float>(at % 7);
  }
  std::vector<std::int32_t> ids;
  for (int token = 0; token < kTokens; ++token) {
    ids.push_back((world.rank() + token) % 8);
    ids.push_back((world.rank() + token + 3) % 8);
  }

  exchange.dispatch({.tokens = view(tokens), .topk_ids = {ids.data(), ferry::DType::i32, {kTokens, 2}}},
                    memory.arrivals());
  memory.run_experts([](int, const Values& row, float* result) {
    for (std::size_t column = 0; column < row.size(); ++column) result[column] = 2 * row[column];
  });
  ferry::CombineInput back = memory.results();
  back.bias[0] = view(residual);
  exchange.combine(back, {.tokens = {sums.data(), ferry::DType::f32, {kTokens, kHidden}}});

  // Two experts doubled the token. A code keeps four bits, and the largest value of a block is at most 1 here, or 4 on
  // the way home.
  for (std::size_t at = 0; at < sums.size(); ++at)
    if (std::fabs(sums[at] - (residual[at] + 4 * tokens[at])) > 0.5f) return false;
  return true;
}

}  // namespace

int main() { return all_ranks_right(kShape.ranks, run_rank); }
