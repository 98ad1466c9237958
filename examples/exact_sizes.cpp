// Exact sizes: a rank sends its tokens, waits until it is known how many rows come, and only then makes the memory for
// them.
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "all_ranks.h"

namespace {

constexpr int kHidden = 64, kTokens = 5;
constexpr ferry::Shape kShape{.ranks = 3, .experts = 6, .top_k = 2, .max_tokens = kTokens, .hidden = kHidden};

// Expert x multiplies by x + 1.
void run_experts(ferry::HostRows& rows, int first_expert) {
  rows.for_each_row([&](int group, std::int64_t row) {
    const std::vector<float> values = rows.values(row);
    for (std::size_t column = 0; column < values.size(); ++column)
      rows.result(row)[column] = values[column] * static_cast<float>(first_expert + group + 1);
  });
}

bool run_rank(ferry::World& world) {
  ferry::Exchange exchange(world, kShape);
  const std::int32_t tokens = 2 * world.rank() + 1;  // each rank has another number of them
  const std::vector<float> ones(static_cast<std::size_t>(tokens) * kHidden, 1.0f);
  std::vector<std::int32_t> ids;
  for (std::int32_t token = 0; token < tokens; ++token)  // most go to rank 0
    ids.insert(ids.end(), {token % 2, 2 + (token + world.rank()) % 4});
  std::vector<float> sums(ones.size());

  exchange.dispatch_async({.tokens = {ones.data(), ferry::DType::f32, {tokens, kHidden}},
                           .topk_ids = {ids.data(), ferry::DType::i32, {tokens, 2}}});
  const ferry::RowCounts counts = exchange.wait_for_counts();
  ferry::HostRows rows(exchange.options().format, exchange.layout(), counts.rows);
  exchange.dispatch_wait(rows.arrivals());
  run_experts(rows, ferry::first_expert(kShape, world.rank()));
  exchange.combine(rows.results(), {.tokens = {sums.data(), ferry::DType::f32, {tokens, kHidden}}});

  const auto came = std::accumulate(counts.by_expert.begin(), counts.by_expert.end(), std::int64_t{0});
  bool right = counts.rows == came && counts.rows < exchange.layout().min_row_capacity;  // bf16 rows need no padding
  for (std::size_t token = 0; token < static_cast<std::size_t>(tokens); ++token)
    right = right && sums[token * kHidden] == static_cast<float>(ids[2 * token] + ids[2 * token + 1] + 2);
  return right;
}

}  // namespace

int main() { return all_ranks_right(kShape.ranks, run_rank); }
