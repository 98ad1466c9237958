// The oracle: what a round must give, computed serially from the inputs of all ranks, with loops that can be read in
// one go. It shares no code with the exchange but the formats' encoders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ferry/exchange.h"

namespace ferry::test {

// What one rank gives to a round.
struct RankInput {
  int num_tokens = 0;
  DType token_dtype = DType::bf16;
  std::vector<std::byte> tokens;             // [num_tokens, hidden]
  std::vector<std::int64_t> topk_ids;        // [num_tokens, top_k]
  std::vector<float> weights;                // [num_tokens, top_k]
  bool weights_are_late = false;             // they come with combine, so rows say 1
  RowOrder row_order = RowOrder::by_expert;  // of the rows that come to it
  std::int64_t expert_stride = 0;            // padded
  std::vector<std::int32_t> expert_counts;   // [experts]: of a dispatch by counts
  std::vector<std::vector<float>> bias;      // one or two of [num_tokens, hidden], as they are given to combine
};

// What all ranks give.
struct Round {
  Shape shape;
  ExchangeOptions options;
  Reduction reduction = Reduction::by_rank;  // of the combine
  float input_scale = 1.0f;
  SumOrder sum_order = SumOrder::by_rank;
  bool applies_weights = true;
  bool zero_padding = false;
  RankMask gone;  // ranks that left after the dispatch whose handle this round is given
  std::vector<RankInput> ranks;
};

// Where a row comes from. In a padding row all three are -1; in a shared row k is top_k; in a row of by_source it is
// the first k that names the rank. A row of a rank that is gone is padding, which its order marks in any case.
struct RowOrigin {
  int source = -1;
  int token = -1;
  int k = -1;
  bool is_of_gone = false;
};

// What dispatch must leave in a rank's outputs. Bytes that it must not touch hold the poison. Of rows that do not fit
// into row_capacity nothing is there but their origins, offsets and counts.
struct ExpectedRows {
  std::vector<RowOrigin> rows;  // [row_offsets.back()]; padded: behind them those that do not fit
  std::int64_t row_capacity = 0;
  std::vector<std::uint32_t> row_offsets;
  std::vector<std::int32_t> expert_ids;
  std::vector<std::uint32_t> scales_offsets;  // tiled scales only
  std::vector<std::byte> payload;      // [row_capacity, bytes of a row]; in_place: what the slots hold, row by row
  std::vector<std::byte> scales;       // the whole tensor for row_capacity
  std::vector<std::int32_t> src_info;  // [rows that fit, 2]; of padded rows past a count: kUntouched
  std::vector<std::int32_t> counts;    // of each group
  // by_source; past the rows the ids are -1, and the weights are not touched
  std::vector<std::int64_t> row_topk_ids;     // [row_capacity, top_k]
  std::vector<float> row_topk_weights;        // [rows that fit, top_k], and zeros behind them where they are wanted
  std::vector<std::uint32_t> source_offsets;  // [sources + 1]
  std::vector<float> global_scales;           // dynamic_scales: [rows]; of rows that are not touched: kUntouched's bits
  std::vector<std::int64_t> slots;            // in_place: [rows]: the slot in any copy, -1 in padding
};
inline constexpr std::int32_t kUntouched = static_cast<std::int32_t>(0xa5a5a5a5);  // four bytes of the suite's poison

// dynamic_scales: the global scale of a token.
float dynamic_scale(InputRow row, int hidden);

bool is_padding(const RowOrigin& row);
bool is_masked_out(const Round& round, int rank);
bool is_gone(const Round& round, int rank);
// What a dispatch finds in place of the row: padding, where its source is gone.
RowOrigin seen_row(const Round& round, const RowOrigin& row);
int alignment_of(const ExchangeOptions& options);
int num_groups(const Round& round, int rank);
ScaleLayout scale_layout_of(const ExchangeOptions& options);

// Tokens [begin, end) of this rank that become rows of its fused shared expert.
struct TokenRange {
  int begin = 0;
  int end = 0;
};
TokenRange shared_tokens(const Round& round, int rank);

// The worst case of a rank's rows, by the contract: R*T*min(K, L), + T with a shared expert, + groups*(alignment-1).
// padded: every expert at its stride. by_source: R*T.
std::int64_t worst_row_capacity(const Round& round, int rank);

// In the order that the rank asked for.
ExpectedRows expected_rows(const Round& round, int rank, std::int64_t row_capacity, std::byte poison);
// The stride of a rank's padded experts.
std::int64_t expert_stride_of(const Round& round, int rank);

// What dispatch must leave in the outputs that may be left out. kUntouched: what was there.
struct ExpectedMore {
  std::vector<std::int32_t> source_starts;  // [groups, sources]
  std::vector<std::int32_t> row_weights;    // [row_capacity]: float32 bits; none by_source
  std::vector<std::int32_t> row_sources;    // [row_capacity]; none by_source
  std::vector<std::int32_t> messages;       // [messages, 2 + top_k]
  std::vector<std::uint32_t>
      source_offsets;  // [sources + 1]: the first message of each source; by_source its first row
  std::int32_t overflow = 0;
};
ExpectedMore expected_more(const Round& round, int rank, const ExpectedRows& rows, std::int64_t row_capacity);

// The scales of the row at `index`, in column order. Scales of padding are 0, or none if they must stay as they were.
std::vector<std::byte> expected_row_scales(const Round& round, int rank, const ExpectedRows& rows, std::size_t index);

// The experts' output by rank: [rows of the rank, hidden], as it is given to combine: bf16 values, or any float32.
// `exact` encodes rows in the format of results for the wire, `by_rank` its partials; shared rows do not travel.
using ExpertOutput = std::vector<std::vector<float>>;

// Rounds to bf16, ties to even. A NaN stays one.
std::uint16_t to_bf16(float value);
float from_bf16(std::uint16_t bits);
// The same of float16; what is too large becomes infinite.
std::uint16_t to_f16(float value);
float from_f16(std::uint16_t bits);

// Tokens [num_tokens, hidden] of `rank`, float32 before the last rounding, in the order of additions that each
// reduction promises; so both are compared bit for bit.
std::vector<float> expected_tokens(const Round& round, const std::vector<ExpectedRows>& rows,
                                   const ExpertOutput& expert_output, int rank);

// Weights [num_tokens, top_k] of `rank` that come home. `row_weights`: by rank, of each row, or top_k of each that is
// by_source; empty where a rank gives none.
std::vector<float> expected_weights(const Round& round, const std::vector<ExpectedRows>& rows,
                                    const std::vector<std::vector<float>>& row_weights, int rank);

// Rows [num_tokens, top_k, hidden] of `rank`, unweighted; zeros where a k has no row.
std::vector<float> expected_unreduced(const Round& round, const std::vector<ExpectedRows>& rows,
                                      const ExpertOutput& expert_output, int rank);

// The same sums in float64, and the largest error that docs/numerics-of-combine.md allows `by_rank` in each of them.
struct Float64Tokens {
  std::vector<double> values;
  std::vector<double> by_rank_bound;
};
Float64Tokens float64_tokens(const Round& round, const std::vector<ExpectedRows>& rows,
                             const ExpertOutput& expert_output, int rank);

}  // namespace ferry::test
