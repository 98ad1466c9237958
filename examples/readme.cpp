// One round: four ranks send two tokens each to the experts they name, and get the weighted sums back.
#include <ferry/ferry.h>

#include <vector>

int main() {
  using namespace ferry;
  const Shape shape{.ranks = 4, .experts = 8, .top_k = 2, .max_tokens = 2, .hidden = 64};
  std::vector<int> right(4);
  run_ranks(4, [&](World& world) {  // runs once per rank, each on a thread of its own
    Exchange exchange(world, shape, {.format = format_named("bf16")});
    const std::int64_t capacity = exchange.layout().min_row_capacity;
    std::vector<float> tokens(2 * 64, 1.0f), weights = {0.75f, 0.25f, 0.5f, 0.5f}, results(capacity * 64), sums(2 * 64);
    std::vector<std::int32_t> ids = {0, 7, 2, 5};
    std::vector<std::vector<std::byte>> memory;  // what a dispatch fills is its caller's
    DispatchOutput rows;
    for (const TensorSpec& spec : dispatch_outputs(exchange.layout(), capacity))
      rows.*spec.field = {memory.emplace_back(spec.bytes()).data(), spec.dtype, spec.shape};
    exchange.dispatch({.tokens = {tokens.data(), DType::f32, {2, 64}},
                       .topk_ids = {ids.data(), DType::i32, {2, 2}},
                       .topk_weights = {weights.data(), DType::f32, {2, 2}}},
                      rows);
    const auto* first_row = rows.row_offsets.as<std::uint32_t>();  // of each expert: its rows are consecutive
    for (int e = 0; e < exchange.layout().groups; ++e)             // here expert number x multiplies by x
      for (auto at = 64 * first_row[e]; at < 64 * first_row[e + 1]; ++at)
        results[at] =
            value_at({rows.payload.data, DType::bf16}, int(at)) * float(first_expert(shape, world.rank()) + e);
    exchange.combine({.rows = {results.data(), DType::f32, {capacity, 64}}, .src_info = rows.src_info},
                     {.tokens = {sums.data(), DType::f32, {2, 64}}});
    right[world.rank()] = sums[0] == 0.75f * 0 + 0.25f * 7 && sums[64] == 0.5f * 2 + 0.5f * 5;
  });
  return right == std::vector<int>(4, 1) ? 0 : 1;
}
