// A training step: the forward pass keeps a handle for each layer, and the backward pass uses them in reverse order. A
// gradient goes to the rows that the tokens went to, and needs no ids.
#include <cmath>
#include <vector>

#include "all_ranks.h"
#include "rank_memory.h"

namespace {

constexpr int kHidden = 64;
constexpr int kTokens = 4;  // of a rank
constexpr int kLayers = 60;
constexpr ferry::Shape kShape{.ranks = 4, .experts = 8, .top_k = 2, .max_tokens = kTokens, .hidden = kHidden};

using Values = std::vector<float>;

ferry::ConstTensor view(const Values& values) { return {values.data(), ferry::DType::f32, {kTokens, kHidden}}; }

// What expert e multiplies a token by. It is its own transpose.
float factor_of(int expert) { return static_cast<float>(expert + 1) / 8; }

// One layer at one rank.
class Layer {
 public:
  Layer(ferry::Exchange& exchange, int index)
      : exchange_(exchange), memory_(exchange), handle_(static_cast<std::size_t>(exchange.layout().handle_bytes)) {
    for (int token = 0; token < kTokens; ++token) {
      ids_.push_back((exchange.rank() + token + index) % 8);
      ids_.push_back((exchange.rank() + token + index + 3) % 8);
    }
  }

  Values forward(const Values& tokens) {
    ferry::DispatchOutput out = memory_.arrivals();
    out.handle = handle();
    exchange_.dispatch({.tokens = view(tokens), .topk_ids = {ids_.data(), ferry::DType::i32, {kTokens, 2}}}, out);
    return finish();
  }
  Values backward(const Values& gradients) {
    exchange_.dispatch({.tokens = view(gradients), .handle = handle()}, memory_.arrivals());
    return finish();
  }
  // What the layer multiplies a token by, forward and backward.
  float factor(int token) const {
    const auto at = static_cast<std::size_t>(2 * token);
    return factor_of(ids_[at]) + factor_of(ids_[at + 1]);
  }

 private:
  ferry::Tensor handle() { return {handle_.data(), ferry::DType::u8, {exchange_.layout().handle_bytes}}; }

  Values finish() {
    const int first = ferry::first_expert(kShape, exchange_.rank());
    memory_.run_experts([&](int group, const Values& row, float* result) {
      for (std::size_t column = 0; column < row.size(); ++column)
        result[column] = row[column] * factor_of(first + group);
    });
    Values sums(kTokens * kHidden);
    ferry::CombineInput in = memory_.results();
    in.handle = handle();
    exchange_.combine(in, {.tokens = {sums.data(), ferry::DType::f32, {kTokens, kHidden}}});
    return sums;
  }

  ferry::Exchange& exchange_;
  RankMemory memory_;
  std::vector<std::byte> handle_;
  std::vector<std::int32_t> ids_;
};

bool run_rank(ferry::World& world) {
  ferry::Exchange exchange(world, kShape);
  std::vector<Layer> layers;
  for (int layer = 0; layer < kLayers; ++layer) layers.emplace_back(exchange, layer);
  Values values(kTokens * kHidden, 1.0f);
  for (Layer& layer : layers) values = layer.forward(values);
  Values gradients(kTokens * kHidden, 1.0f);
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) gradients = layer->backward(gradients);

  // A layer rounds a row and a token to bf16, which keeps 8 bits.
  const float bound = std::pow(1 + 1 / 256.0f, 2.0f * kLayers);
  bool is_right = true;
  for (int token = 0; token < kTokens; ++token) {
    float product = 1;
    for (const Layer& layer : layers) product *= layer.factor(token);
    for (const Values* pass : {&values, &gradients}) {
      const float got = (*pass)[static_cast<std::size_t>(token) * kHidden];
      is_right = is_right && got > product / bound && got < product * bound;
    }
  }
  return is_right;
}

}  // namespace

int main() { return all_ranks_right(kShape.ranks, run_rank); }
