// Two hooks that save a pass over the tokens: the router's weights come from a function instead of an array, and an
// epilogue takes the unrounded sums, here to add them to the residual stream.
#include <vector>

#include "all_ranks.h"
#include "rank_memory.h"

namespace {

constexpr int kHidden = 96;
constexpr int kTokens = 5;
constexpr ferry::Shape kShape{.ranks = 3, .experts = 7, .top_k = 2, .max_tokens = kTokens, .hidden = kHidden};

// Raw scores that become weights when they are asked for.
struct Router {
  std::vector<float> scores;  // [token, k]

  static float weight(void* context, int token, int k) {
    const float* scores = static_cast<const Router*>(context)->scores.data() + 2 * token;
    return scores[k] / (scores[0] + scores[1]);
  }
};

struct Residual {
  std::vector<float> values;  // [token, hidden]

  static void add(void* context, int token, int column, const float* sums, int count) {
    float* values = static_cast<Residual*>(context)->values.data() + token * kHidden + column;
    for (int i = 0; i < count; ++i) values[i] += sums[i];
  }
};

bool run_rank(ferry::World& world) {
  ferry::Exchange exchange(world, kShape);
  RankMemory memory(exchange);
  const std::vector<float> tokens(kTokens * kHidden, 1.0f);
  Router router;
  std::vector<std::int32_t> ids;
  for (int token = 0; token < kTokens; ++token) {
    ids.insert(ids.end(), {token, token + 2});
    router.scores.insert(router.scores.end(), {3.0f, 1.0f});
  }
  exchange.dispatch({.tokens = {tokens.data(), ferry::DType::f32, {kTokens, kHidden}},
                     .topk_ids = {ids.data(), ferry::DType::i32, {kTokens, 2}},
                     .router_weight = Router::weight,
                     .router_weight_context = &router},
                    memory.arrivals());

  memory.run_experts([&](int group, const std::vector<float>& row, float* result) {
    const auto expert = static_cast<float>(ferry::first_expert(kShape, world.rank()) + group);
    for (std::size_t column = 0; column < row.size(); ++column) result[column] = row[column] * expert;
  });

  Residual residual{std::vector<float>(kTokens * kHidden, 1000.0f)};
  exchange.combine(memory.results(), {.epilogue = Residual::add, .epilogue_context = &residual});
  bool right = true;
  for (int token = 0; token < kTokens; ++token) {
    const float sum = 0.75f * static_cast<float>(token) + 0.25f * static_cast<float>(token + 2);
    const float* values = residual.values.data() + token * kHidden;
    for (int column = 0; column < kHidden; ++column) right = right && values[column] == 1000.0f + sum;
  }
  return right;
}

}  // namespace

int main() { return all_ranks_right(kShape.ranks, run_rank); }
