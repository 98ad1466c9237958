// One round: four ranks send two tokens each to the experts they name, and get the weighted sums back.
#include <ferry/ferry.h>

#include <vector>

int main() {
  using namespace ferry;
  const Shape shape{.ranks = 4, .experts = 8, .top_k = 2, .max_tokens = 2, .hidden = 64};
  std::vector<int> right(4);
  run_ranks(4, [&](World& world) {  // runs once per rank, each on a thread of its own
    Exchange exchange(world, shape, {.format = format_named("bf16")});
    const std::int64_t capacity = exchange.layout().min_row_capacity, experts = exchange.layout().groups;
    std::vector<float> tokens(2 * 64, 1.0f), weights = {0.75f, 0.25f, 0.5f, 0.5f}, results(capacity * 64), sums(2 * 64);
    std::vector<std::int32_t> ids = {0, 7, 2, 5}, expert_ids(experts), src_info(capacity * 2);
    std::vector<std::uint32_t> row_offsets(experts + 1);
    std::vector<std::uint16_t> rows(capacity * 64);
    exchange.dispatch({.tokens = {tokens.data(), DType::f32, {2, 64}},
                       .topk_ids = {ids.data(), DType::i32, {2, 2}},
                       .topk_weights = {weights.data(), DType::f32, {2, 2}}},
                      {.payload = {rows.data(), DType::bf16, {capacity, 64}},
                       .row_offsets = {row_offsets.data(), DType::u32, {experts + 1}},
                       .expert_ids = {expert_ids.data(), DType::i32, {experts}},
                       .src_info = {src_info.data(), DType::i32, {capacity, 2}}});
    for (int e = 0; e < experts; ++e)  // an expert's rows are consecutive; here expert number x multiplies by x
      for (int at = 64 * int(row_offsets[e]); at < 64 * int(row_offsets[e + 1]); ++at)
        results[at] = value_at({rows.data(), DType::bf16}, at) * float(first_expert(shape, world.rank()) + e);
    exchange.combine({.rows = {results.data(), DType::f32, {capacity, 64}},
                      .src_info = {src_info.data(), DType::i32, {capacity, 2}}},
                     {.tokens = {sums.data(), DType::f32, {2, 64}}});
    right[world.rank()] = sums[0] == 0.75f * 0 + 0.25f * 7 && sums[64] == 0.5f * 2 + 0.5f * 5;
  });
  return right == std::vector<int>(4, 1) ? 0 : 1;
}
