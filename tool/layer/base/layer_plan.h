// A layer as it is given, how it is to run, and what follows from both before it runs.
#pragma once

#include <chrono>
#include <cstdint>

#include "ferry/exchange.h"

namespace ferry::app {

inline constexpr std::int64_t kMostTokensPerRound = 4096;  // of each rank

// One expert's weights as the caller's file holds them.
struct ExpertWeights {
  const float* gate_up = nullptr;  // [2 * inter, hidden]: gate rows, then up rows
  const float* down = nullptr;     // [hidden, inter]
  int inter = 0;
};

// Views of the caller's arrays, with shapes that fit each other (inputs/layer_inputs.h sees to it).
struct Layer {
  std::int64_t tokens = 0;
  int hidden = 0;
  int experts = 0;
  int top_k = 0;
  int inter = 0;
  int shared_inter = 0;            // 0: no shared expert
  const float* x = nullptr;        // [tokens, hidden]
  ConstTensor ids;                 // i32 or i64 [tokens, top_k]
  const float* weights = nullptr;  // [tokens, top_k]
  const float* gate_up = nullptr;  // [experts, 2 * inter, hidden]
  const float* down = nullptr;     // [experts, hidden, inter]
  const float* shared_gate_up = nullptr;
  const float* shared_down = nullptr;

  int largest_inter() const { return inter > shared_inter ? inter : shared_inter; }
  std::int64_t id(std::int64_t token, int k) const;
  ExpertWeights expert(int index) const;
  ExpertWeights shared_expert() const { return {shared_gate_up, shared_down, shared_inter}; }
};

class ExpertPlace;                 // experts/expert_place.h
const ExpertPlace& cpu_experts();  // float32 through a BLAS (experts/experts.h): the same bytes whatever the ranks are

struct LayerOptions {
  int ranks = 1;
  AnyFormat format = format_named("bf16");
  Reduction reduction = Reduction::by_rank;  // of combines
  float input_scale = 1.0f;
  bool one_round = false;
  // The deadline of every wait. All ranks enter a call together, so only the time of the call itself counts, on a
  // machine of any speed.
  std::chrono::milliseconds deadline = std::chrono::minutes(5);
  // How often each round's dispatch and combine are repeated after the round itself. Where they are, the round only
  // warms up, and the times are medians of the repeats.
  int repeats = 0;
  RowOrder rows = RowOrder::by_expert;       // or by_source, or padded
  bool encoded = false;                      // tokens are given to dispatch in the format
  AnyFormat results = format_named("bf16");  // in which results travel
  const ExpertPlace* experts = &cpu_experts();
  bool chooses = false;  // the exchange is made with either, and each combine says its reduction
  int message_copies = 2;
};

// Tokens [begin, begin + count) of the layer belong to a rank; the first tokens % ranks ranks have one more.
struct TokenSpan {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};
TokenSpan tokens_of_rank(std::int64_t tokens, int ranks, int rank);

// What follows only from the sizes: the exchange of every round, and how many rounds there are.
struct LayerPlan {
  Shape shape;  // max_tokens: tokens of a rank in a round
  ExchangeOptions exchange;
  std::int64_t rounds = 1;
};
// Throws Error(invalid_argument) where layer and options cannot work together.
LayerPlan plan_layer(const Layer& layer, const LayerOptions& options);

}  // namespace ferry::app
