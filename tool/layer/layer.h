// One Mixture-of-Experts layer, run expert-parallel on ranks of this machine: tokens are split over the ranks, carried
// to the experts' ranks in rounds, and combined at home.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ferry/exchange.h"
#include "tool/layer/experts/expert_place.h"
#include "tool/layer/experts/experts.h"
#include "tool/ranks/ranks.h"

namespace ferry::app {

inline constexpr std::int64_t kMostTokensPerRound = 4096;  // of each rank

// Views of the caller's arrays, with shapes that fit each other (layer_inputs.h sees to it).
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

struct LayerOptions {
  int ranks = 1;
  AnyFormat format = format_named("bf16");
  Reduction reduction = Reduction::by_rank;
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

// Host memory that run_layer will use in all processes together, beside the arrays of the layer and the output.
std::vector<MemoryNeed> layer_memory(const Layer& layer, const LayerPlan& plan, const LayerOptions& options,
                                     bool on_gpus);

// The output of one rank's dispatch, as it is when the experts are done with it.
struct RankRows {
  const RowLayout* layout;
  std::int64_t row_capacity;
  std::byte* payload;
  std::byte* scales;
  const std::int32_t* src_info;
  std::span<const std::uint32_t> row_offsets;
  std::span<const std::int32_t> expert_ids;
  std::span<const std::uint32_t> scales_offsets;  // empty but for tiled scales
};
// Called on each rank's thread after its round. May change the payload and the scales.
using RowsObserver = std::function<void(int rank, const RankRows& rows)>;

struct LayerReport {
  std::int64_t rounds = 0;
  double dispatch_seconds = 0;  // each round counts with its slowest rank; without copies between host and GPU
  double expert_seconds = 0;
  double combine_seconds = 0;
  std::uint64_t message_bytes = 0;              // of one token on the wire
  std::uint64_t messages = 0;                   // to ranks other than the token's own
  std::uint64_t dispatch_bytes = 0;             // messages * message_bytes
  std::uint64_t wire_bytes = 0;                 // all that ranks wrote at other ranks: messages, routing and results
  std::uint64_t rows = 0;                       // that experts worked on
  std::uint64_t non_finite_blocks = 0;          // in the tokens
  std::vector<std::uint64_t> messages_between;  // [ranks, ranks]: from source to expert rank, to itself included
};

// output: float32 [tokens, hidden]; where this process plays only some of the ranks, their lines of it. The report is
// of all ranks, in every process. `progress` is called with rows done, from any thread. Where the experts run on the
// host, the default, all backends give the same bytes.
LayerReport run_layer(const Ranks& ranks, const Layer& layer, const LayerOptions& options, float* output,
                      const std::function<void(std::int64_t)>& progress = {}, const RowsObserver& observer = {});

}  // namespace ferry::app
