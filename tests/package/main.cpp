// Two ranks send each other one token through an installed Ferry and get it back: prints "2 tokens home".
#include <ferry/ferry.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <vector>

namespace {

constexpr int kHidden = 64;

// Sends a token of ones to the other rank's expert, which hands it back unchanged. True when it came home whole.
bool token_comes_home(ferry::World& world) {
  ferry::Exchange exchange(world, {.ranks = 2, .experts = 2, .top_k = 1, .max_tokens = 1, .hidden = kHidden});
  const std::int64_t capacity = exchange.layout().min_row_capacity;

  const std::vector<float> token(kHidden, 1.0f);
  const std::int32_t other_rank = 1 - world.rank();
  ferry::DispatchInput input;
  input.tokens = {token.data(), ferry::DType::f32, {1, kHidden}};
  input.topk_ids = {&other_rank, ferry::DType::i32, {1, 1}};

  ferry::DispatchOutput arrived;
  std::vector<std::unique_ptr<std::byte[]>> memory;
  for (const ferry::TensorSpec& spec : ferry::dispatch_outputs(exchange.layout(), capacity)) {
    memory.push_back(std::make_unique<std::byte[]>(spec.bytes()));
    arrived.*spec.field = {memory.back().get(), spec.dtype, spec.shape};
  }
  exchange.dispatch(input, arrived);

  std::vector<float> home(kHidden);
  ferry::CombineInput results;
  results.rows = arrived.payload;
  results.src_info = arrived.src_info;
  ferry::CombineOutput output;
  output.tokens = {home.data(), ferry::DType::f32, {1, kHidden}};
  exchange.combine(results, output);
  return arrived.row_offsets.as<std::uint32_t>()[1] == 1 && home == token;
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
