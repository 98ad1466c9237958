// One round: four ranks send two tokens each to the experts they name, and get the weighted sums back.
#include <ferry/ferry.h>

#include <algorithm>
#include <cstdio>
#include <vector>

int main() {
  using namespace ferry;
  const Shape shape{.ranks = 4, .experts = 8, .top_k = 2, .max_tokens = 2, .hidden = 64};
  std::vector<int> right(4);
  run_ranks(4, [&](World& world) {  // runs once per rank, each on a thread of its own
    Exchange exchange(world, shape, {.format = format_named("fp8_block128")});
    HostRows rows(exchange);  // memory for what a dispatch fills, and for the experts' results
    std::vector<float> tokens(2 * 64, 1.0f), weights = {0.75f, 0.25f, 0.5f, 0.5f}, sums(2 * 64);
    std::vector<std::int32_t> ids = {0, 7, 2, 5};
    exchange.dispatch({.tokens = {tokens.data(), DType::f32, {2, 64}},
                       .topk_ids = {ids.data(), DType::i32, {2, 2}},
                       .topk_weights = {weights.data(), DType::f32, {2, 2}}},
                      rows.arrivals());
    rows.for_each_row([&](int group, std::int64_t row) {  // here expert number x multiplies by x
      const std::vector<float> values = rows.values(row);
      for (std::size_t column = 0; column < values.size(); ++column)
        rows.result(row)[column] = values[column] * float(first_expert(shape, world.rank()) + group);
    });
    exchange.combine(rows.results(), {.tokens = {sums.data(), DType::f32, {2, 64}}});
    right[world.rank()] = sums[0] == 0.75f * 0 + 0.25f * 7 && sums[64] == 0.5f * 2 + 0.5f * 5;
  });
  const auto ranks = std::count(right.begin(), right.end(), 1);
  std::printf("%d of 4 ranks have the right sums\n", static_cast<int>(ranks));
  return ranks == 4 ? 0 : 1;
}
