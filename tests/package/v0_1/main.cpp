// Two ranks send each other one token through an installed Ferry and get it back: prints "2 tokens home".
#include <ferry/ferry.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

namespace {

constexpr int kHidden = 64;

// Sends a token of ones to the other rank's expert, which hands it back unchanged. True when it came home whole.
bool token_comes_home(ferry::World& world) {
  ferry::Exchange exchange(world, {.ranks = 2, .experts = 2, .top_k = 1, .max_tokens = 1, .hidden = kHidden});
  const std::int64_t capacity = exchange.layout().min_row_capacity;

  const std::vector<float> token(kHidden, 1.0f);
  const std::int32_t other_rank = 1 - world.rank();
  std::vector<std::uint16_t> rows(static_cast<std::size_t>(capacity) * kHidden);
  std::array<std::uint32_t, 2> row_offsets{};
  std::int32_t expert_id = -1;
  std::vector<std::int32_t> src_info(static_cast<std::size_t>(capacity) * 2);
  const ferry::Tensor row_view(rows.data(), ferry::DType::bf16, {capacity, kHidden});
  const ferry::Tensor src_info_view(src_info.data(), ferry::DType::i32, {capacity, 2});

  ferry::DispatchInput input;
  input.tokens = {token.data(), ferry::DType::f32, {1, kHidden}};
  input.topk_ids = {&other_rank, ferry::DType::i32, {1, 1}};
  ferry::DispatchOutput arrived;
  arrived.payload = row_view;
  arrived.row_offsets = {row_offsets.data(), ferry::DType::u32, {2}};
  arrived.expert_ids = {&expert_id, ferry::DType::i32, {1}};
  arrived.src_info = src_info_view;
  exchange.dispatch(input, arrived);

  std::vector<float> home(kHidden);
  ferry::CombineInput results;
  results.rows = row_view;
  results.src_info = src_info_view;
  ferry::CombineOutput output;
  output.tokens = {home.data(), ferry::DType::f32, {1, kHidden}};
  exchange.combine(results, output);
  return row_offsets[1] == 1 && home == token;
}

}  // namespace

int main() {
  try {
    std::atomic<int> home = 0;
    ferry::run_ranks(2, [&](ferry::World& world) { home += token_comes_home(world) ? 1 : 0; });
    std::printf("%d tokens home\n", home.load());
    return home == 2 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
