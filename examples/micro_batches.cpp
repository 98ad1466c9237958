// Two micro-batches on one exchange: while the experts work on one, the other travels. Each keeps the handle of its
// dispatch, so its results find home after the other's dispatch. Two exchanges (overlap.cpp) need twice the memory.
#include <vector>

#include "all_ranks.h"
#include "rank_memory.h"

namespace {

constexpr int kHidden = 64;
constexpr int kTokens = 4;  // of a micro-batch
constexpr ferry::Shape kShape{.ranks = 4, .experts = 8, .top_k = 2, .max_tokens = kTokens, .hidden = kHidden};

// One micro-batch of a rank: its rows, its handle, its input and its output.
struct Batch {
  Batch(ferry::Exchange& on, int index)
      : exchange(on),
        memory(on),
        handle(static_cast<std::size_t>(on.layout().handle_bytes)),
        tokens(kTokens * kHidden),
        sums(kTokens * kHidden) {
    for (int token = 0; token < kTokens; ++token) {
      for (int column = 0; column < kHidden; ++column)
        tokens[static_cast<std::size_t>(token * kHidden + column)] = static_cast<float>(10 * index + token);
      ids.push_back((on.rank() + token + index) % 8);
      ids.push_back((on.rank() + token + index + 3) % 8);
    }
  }

  ferry::Tensor kept() { return {handle.data(), ferry::DType::u8, {exchange.layout().handle_bytes}}; }

  void send() {
    exchange.dispatch_async({.tokens = {tokens.data(), ferry::DType::f32, {kTokens, kHidden}},
                             .topk_ids = {ids.data(), ferry::DType::i32, {kTokens, 2}}});
  }
  void receive() {
    ferry::DispatchOutput out = memory.arrivals();
    out.handle = kept();
    exchange.dispatch_wait(out);
  }
  void run_experts() {
    memory.run_experts([](int, const std::vector<float>& row, float* result) {
      for (std::size_t column = 0; column < row.size(); ++column) result[column] = row[column] + 1;
    });
  }
  void send_back() {
    ferry::CombineInput in = memory.results();
    in.handle = kept();
    exchange.combine_async(in);
  }
  void sum() { exchange.combine_wait({.tokens = {sums.data(), ferry::DType::f32, {kTokens, kHidden}}}); }

  // Two experts each added 1 and had weight 1.
  bool is_right() const {
    for (std::size_t at = 0; at < sums.size(); ++at)
      if (sums[at] != 2 * (tokens[at] + 1)) return false;
    return true;
  }

  ferry::Exchange& exchange;
  RankMemory memory;
  std::vector<std::byte> handle;
  std::vector<float> tokens;
  std::vector<std::int32_t> ids;
  std::vector<float> sums;
};

bool run_rank(ferry::World& world) {
  ferry::Exchange exchange(world, kShape);
  Batch first(exchange, 0);
  Batch second(exchange, 1);
  bool is_right = true;
  for (int step = 0; step < 3; ++step) {
    first.send();
    first.receive();
    second.send();  // travels while the experts work on the first
    first.run_experts();
    second.receive();
    first.send_back();  // travels while the experts work on the second
    second.run_experts();
    first.sum();
    second.send_back();
    second.sum();
    is_right = is_right && first.is_right() && second.is_right();
  }
  return is_right;
}

}  // namespace

int main() { return all_ranks_right(kShape.ranks, run_rank); }
