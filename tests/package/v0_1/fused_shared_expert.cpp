// A shared expert, which sees every token, without a pass of its own: with fused_shared_expert a rank's tokens are also
// group 0 of its rows, and combine adds the rows of that group last, unweighted.
#include <vector>

#include "all_ranks.h"
#include "rank_memory.h"

namespace {

constexpr int kHidden = 32;
constexpr ferry::Shape kShape{.ranks = 2, .experts = 4, .top_k = 2, .max_tokens = 3, .hidden = kHidden};

// Routed expert x multiplies by x, the shared one by 100. True when every sum of this rank is right.
bool run_rank(ferry::World& world) {
  ferry::Exchange exchange(world, kShape, {.fused_shared_expert = true});
  RankMemory memory(exchange);
  const std::vector<float> tokens(3 * kHidden, 1.0f);
  const std::vector<std::int32_t> ids = {0, 3, 2, 1, 3, -1};
  const std::vector<float> weights = {0.5f, 0.25f, 0.5f, 1.0f, 2.0f, 0.0f};
  exchange.dispatch({.tokens = {tokens.data(), ferry::DType::f32, {3, kHidden}},
                     .topk_ids = {ids.data(), ferry::DType::i32, {3, 2}},
                     .topk_weights = {weights.data(), ferry::DType::f32, {3, 2}}},
                    memory.arrivals());

  memory.run_experts([&](int group, const std::vector<float>& row, float* result) {
    const int routed = ferry::first_expert(kShape, world.rank()) + group - 1;  // group 0 is the shared expert's
    for (int column = 0; column < kHidden; ++column)
      result[column] = row[static_cast<std::size_t>(column)] * static_cast<float>(group == 0 ? 100 : routed);
  });

  std::vector<float> sums(3 * kHidden);
  exchange.combine(memory.results(), {.tokens = {sums.data(), ferry::DType::f32, {3, kHidden}}});
  const float expected[] = {0.5f * 0 + 0.25f * 3 + 100, 0.5f * 2 + 1.0f * 1 + 100, 2.0f * 3 + 100};
  bool right = true;
  for (std::size_t at = 0; at < sums.size(); ++at) right = right && sums[at] == expected[at / kHidden];
  return right;
}

}  // namespace

int main() { return all_ranks_right(kShape.ranks, run_rank); }
