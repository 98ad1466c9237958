// Two rounds in flight: while the experts work on one half of the tokens, the other half travels. Rounds that overlap
// are rounds of two exchanges; `concurrent` says how many share the machine.
#include <vector>

#include "all_ranks.h"
#include "rank_memory.h"

namespace {

constexpr int kHidden = 64;
constexpr int kHalf = 4;  // tokens of a half
constexpr ferry::Shape kShape{.ranks = 4, .experts = 8, .top_k = 2, .max_tokens = kHalf, .hidden = kHidden};

// One half of a rank's tokens: its exchange, its memory, its input and its output.
struct Half {
  Half(ferry::World& world, int index)
      : exchange(world, kShape, {.concurrent = 2}), memory(exchange), tokens(kHalf * kHidden), sums(kHalf * kHidden) {
    for (int token = 0; token < kHalf; ++token) {
      for (int column = 0; column < kHidden; ++column)
        tokens[static_cast<std::size_t>(token) * kHidden + static_cast<std::size_t>(column)] =
            static_cast<float>(10 * index + token);
      ids.push_back((world.rank() + token) % 8);
      ids.push_back((world.rank() + token + 4) % 8);
    }
  }

  void send() {
    exchange.dispatch_async({.tokens = {tokens.data(), ferry::DType::f32, {kHalf, kHidden}},
                             .topk_ids = {ids.data(), ferry::DType::i32, {kHalf, 2}}});
  }
  void receive() { exchange.dispatch_wait(memory.arrivals()); }
  void run_experts() {
    memory.run_experts([](int, const std::vector<float>& row, float* result) {
      for (std::size_t column = 0; column < row.size(); ++column) result[column] = row[column] + 1;
    });
  }
  void send_back() { exchange.combine_async(memory.results()); }
  void sum() { exchange.combine_wait({.tokens = {sums.data(), ferry::DType::f32, {kHalf, kHidden}}}); }

  // Two experts each added 1 and had weight 1.
  bool is_right() const {
    for (std::size_t at = 0; at < sums.size(); ++at)
      if (sums[at] != 2 * (tokens[at] + 1)) return false;
    return true;
  }

  ferry::Exchange exchange;
  RankMemory memory;
  std::vector<float> tokens;
  std::vector<std::int32_t> ids;
  std::vector<float> sums;
};

bool run_rank(ferry::World& world) {
  Half first(world, 0);
  Half second(world, 1);
  first.send();
  second.send();  // travels while the first half is worked on
  first.receive();
  first.run_experts();
  first.send_back();  // travels while the second half is worked on
  second.receive();
  second.run_experts();
  second.send_back();
  first.sum();
  second.sum();
  return first.is_right() && second.is_right();
}

}  // namespace

int main() { return all_ranks_right(kShape.ranks, run_rank); }
