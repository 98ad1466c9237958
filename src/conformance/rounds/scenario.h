// Scenario: one round's inputs of all ranks, and what the oracle says must come out. The same on every rank, from the
// seed.
#pragma once

#include <cstdint>
#include <string>

#include "conformance/oracle/oracle.h"
#include "conformance/oracle/routing_patterns.h"

namespace ferry::conformance {

inline constexpr std::byte kPoison{0xa5};
inline constexpr std::chrono::milliseconds kSuiteDeadline{20'000};  // long enough for a busy machine

// Where weights come from.
enum class WeightForm { none, array, hook };

// Which call is given the weights of by_rank. `either`: odd ranks give them to combine. A rank whose rows are by_source
// gives them to dispatch in any case: its combine refuses them.
enum class WeightsAt { dispatch, combine, either };

// Which ranks give tokens that they have encoded themselves.
enum class Encoded { nobody, odd_ranks, all };

// Whether and how ranks ask for the scales of rows at strides of their own: side by side beside `scales`; transposed in
// place of them, as they are, as numbers, or in groups of four.
enum class ScaleForm { none, rows, columns, numbers, groups_of_four };

// Of the usual outputs, those that dispatches leave out.
struct LeftOut {
  bool row_offsets = false;
  bool expert_ids = false;
  bool src_info = false;
};

struct ScenarioSettings {
  Shape shape;
  ExchangeOptions options;
  std::string routing = "uniform";
  std::uint64_t seed = 1;
  DType token_dtype = DType::bf16;
  Encoded encoded = Encoded::nobody;
  DType id_dtype = DType::i32;
  DType row_dtype = DType::bf16;          // of the experts' output
  DType output_dtype = DType::bf16;       // of combine's output
  DType global_scale_dtype = DType::f32;  // of dynamic_scales; not of rows in place
  WeightForm weights = WeightForm::array;
  DType weight_dtype = DType::f32;  // of an array
  WeightsAt weights_at = WeightsAt::dispatch;
  Reduction chosen = Reduction::by_rank;  // by the combine, where the exchange's reduction is either
  float input_scale = 1.0f;
  bool extremes =
      false;           // of the experts' output and the weights: NaN, infinities, what a format of results cannot say
  int token_gap = 0;   // elements between two token rows
  int row_gap = 0;     // the same in the experts' output
  int output_gap = 0;  // the same in combine's output
  int spare_rows = 5;  // row capacity beyond the worst case
  bool exact_rows = false;  // row capacity: what comes, in place of the worst case and spare_rows; not padded
  int max_blocks = 0;       // CallOptions
  bool epilogue = false;
  bool unreduced = false;
  std::vector<RowOrder> row_orders;  // of the ranks, again and again; empty: all by_expert
  std::int64_t expert_stride = 0;    // of padded rows
  int num_bias = 0;
  DType bias_dtype = DType::bf16;
  SumOrder sum_order = SumOrder::by_rank;
  bool applies_weights = true;
  bool more_outputs = false;  // all beside the usual ones
  LeftOut left_out{};
  ScaleForm scale_form = ScaleForm::none;
  bool zero_padding = false;
  Overflow overflow = Overflow::refused;
  int room_percent = 100;  // where rows may overflow: row capacity, as a part of what comes; not padded
  bool by_counts = false;  // dispatch is given in_rank and expert_counts in place of ids; rows are by_source
  bool odd_ranks_return_none = false;  // with returns_weights: they give no row_topk_weights
  RankMask gone;                       // ranks that left after the dispatch whose handle the calls are given
  bool each_its_own = false;           // ranks differ in all that they may: settings_at
  // DispatchInput::format. Where it is i > 0, options.more_formats[i - 1] is the exchange's own: exchange_options().
  int format = 0;
  bool as_bytes = false;  // the exchange has formats of the same sizes that look at no byte; all tokens come encoded
};

struct Scenario {
  ScenarioSettings settings;
  test::Round round;
  std::vector<std::int64_t> row_capacity;  // by rank
  std::vector<test::ExpectedRows> rows;    // by rank
  test::ExpertOutput expert_output;        // by rank; NaN in padding rows, which combine must skip
  // returns_weights: by rank, [rows] or, by_source, [rows, top_k]; NaN where nobody reads; empty: none are given
  std::vector<std::vector<float>> row_weights;
};

// What one rank gives and asks for.
ScenarioSettings settings_at(const ScenarioSettings& settings, int rank);

// Of the round's combine.
Reduction reduction_of(const ScenarioSettings& settings);
// The same round, combined in the other way.
Scenario combined_as(Scenario scenario, Reduction reduction);

// Options with the suite's deadline.
ExchangeOptions options_for(const char* format, Reduction reduction = Reduction::by_rank);

// The options of the exchange on which the scenario runs.
ExchangeOptions exchange_options(const ScenarioSettings& settings);

Scenario make_scenario(const ScenarioSettings& settings);

// The same routing and weights as `given`, with other tokens and another output of the experts. `settings` must have
// the ranks, experts, top_k and max_tokens of `given`.
Scenario with_other_tokens(const Scenario& given, ScenarioSettings settings, std::uint64_t seed);

// What comes of a round whose tokens the caller has changed.
Scenario with_same_tokens(Scenario scenario);

// The same round with other weights on odd ranks.
Scenario with_other_weights(const Scenario& given, std::uint64_t seed);

// "ranks=2 ... format=mxfp8 reduction=exact routing=uniform seed=3", for failures.
std::string describe(const ScenarioSettings& settings);

}  // namespace ferry::conformance
