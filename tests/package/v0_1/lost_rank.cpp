// A rank does not come. The others get an error that names it, instead of hanging, and go on without it: a new exchange
// with a mask, in which tokens for the lost rank's experts are dropped.
#include <cstdio>
#include <vector>

#include "all_ranks.h"
#include "rank_memory.h"

namespace {

constexpr int kHidden = 32;
constexpr int kLost = 2;
constexpr ferry::Shape kShape{.ranks = 4, .experts = 4, .top_k = 2, .max_tokens = 1, .hidden = kHidden};

// One token, to expert 0 and to the lost rank's; each expert adds 1. What comes home in column 0.
float run_round(ferry::Exchange& exchange, const ferry::CallOptions& call = {}) {
  RankMemory memory(exchange);
  const std::vector<float> token(kHidden, 5.0f);
  const std::vector<std::int32_t> ids = {0, kLost};
  exchange.dispatch(
      {.tokens = {token.data(), ferry::DType::f32, {1, kHidden}}, .topk_ids = {ids.data(), ferry::DType::i32, {1, 2}}},
      memory.arrivals(), call);
  memory.run_experts([](int, const std::vector<float>& row, float* result) {
    for (std::size_t column = 0; column < row.size(); ++column) result[column] = row[column] + 1;
  });
  std::vector<float> sum(kHidden);
  exchange.combine(memory.results(), {.tokens = {sum.data(), ferry::DType::f32, {1, kHidden}}});
  return sum[0];
}

bool run_rank(ferry::World& world) {
  ferry::Exchange whole(world, kShape);
  if (run_round(whole) != 12) return false;  // two experts, 6 each
  if (world.rank() == kLost) return true;    // goes away without a word

  int missing = -1;
  try {
    run_round(whole, {.deadline = std::chrono::milliseconds(400)});
  } catch (const ferry::PeerMissing& error) {
    missing = error.record().missing_rank;
    if (world.rank() == 0) std::printf("%s\n", error.what());
  }
  if (missing != kLost) return false;

  ferry::RankMask mask(kShape.ranks);
  mask[kLost] = true;
  ferry::Exchange survivors(world, kShape, {.mask = mask});
  return run_round(survivors) == 6 && survivors.stats().dropped == 1;
}

}  // namespace

int main() { return all_ranks_right(kShape.ranks, run_rank); }
