// The kernels of the stress program: inputs out of a seed, delays, and an oracle that computes every row and every sum
// again from the seed, by brute force and with no code of the library.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ferry/row_order.h"

namespace ferry::stress {

inline constexpr int kMostRanks = 16;

enum class Format { bf16, f16, f32, fp8_block128, fp8_block128_ue8m0, mxfp8, mxfp4, nvfp4 };
enum class Layout { none, row_major, transposed, tiled };  // of the scales

// Columns that share a scale; 0 without scales.
constexpr int scale_width(Format format) {
  return format < Format::fp8_block128 ? 0 : format == Format::nvfp4 ? 16 : format < Format::mxfp8 ? 128 : 32;
}
// Only formats of tokens; f16 and f32 are formats of results.
constexpr int code_bits(Format format) { return format == Format::bf16 ? 16 : format < Format::mxfp4 ? 8 : 4; }

// What is the same in all rounds of a segment. `T` is max_tokens; pointers are to device memory of the rank.
struct Setting {
  int ranks, rank, experts, top_k, max_tokens, hidden;
  Format format, result;
  Layout layout;
  bool exact, shared;
  bool half, wide_ids;  // tokens are float16, ids are int64
  float input_scale;    // nvfp4
  int alignment, groups, first_expert;
  long long stride;  // of padded rows: ranks * T
  const int* owner;  // [experts]: the rank of each
};

// One round: how many tokens each rank has, how its rows lie, and the seeds of all values. A replay has the routing of
// another round: its ids, its weights, its numbers of tokens and its orders of rows.
struct Round {
  unsigned number;
  unsigned seed;     // of tokens and answers
  unsigned routing;  // the round whose routing it is, and the seed of that
  unsigned routing_seed;
  int tokens[kMostRanks];
  RowOrder order[kMostRanks];
};

struct Inputs {
  std::uint16_t* tokens;  // bf16 or float16 [n, hidden]
  void* ids;              // int32 or int64 [n, K]
  float* weights;         // [n, K]
  int* all_ids;           // [ranks, T, K]: of every rank, for the oracle
};

// What a dispatch wrote. Which of it is there follows from the order of rows; src_info null: nothing is compared.
struct Rows {
  RowOrder order;
  const std::uint8_t* payload;
  const std::uint8_t* scales;
  const unsigned* row_offsets;
  const int* expert_ids;
  const int* src_info;
  const unsigned* scales_offsets;  // tiles only
  const int* counts;
  const int* row_topk_ids;
  const float* row_topk_weights;
  const unsigned* source_offsets;
  const int* gather;    // of rows in place, whose payload and scales are what gather_rows made
  long long capacity;   // rows of the tensors
  std::uint8_t poison;  // what every byte was before
};

// What the oracle keeps for itself: of each group where its rows begin [groups + 1], how many there are, and its first
// tile of scales; whether a token names an expert of this rank [ranks, T]; and the rows of combine, bf16, in the order
// of the round.
struct Scratch {
  unsigned* starts;
  unsigned* counts;
  unsigned* tiles;
  std::uint8_t* comes;
  std::uint16_t* results;
};

enum class Wrong : int {
  none,
  row_offsets,
  expert_ids,
  src_info,
  scales_offsets,
  counts,
  row_topk_ids,
  row_topk_weights,
  source_offsets,
  gather,
  payload,
  scale,
  padding,
  sum
};
const char* to_string(Wrong wrong);

// What the oracle found; the fields after `mismatches` describe the first one.
struct Verdict {
  unsigned long long rows_checked;
  unsigned long long rows_of_others;  // of them: whose tokens came from another rank
  unsigned long long sums_checked;
  unsigned long long mismatches;
  Wrong wrong;
  unsigned round;
  int place;   // row, group or token
  int column;  // or block, or -1
  unsigned expected, got;
};

void make_inputs(const Setting& setting, const Round& round, const Inputs& inputs, cudaStream_t stream);
// Rows in place: the slots of all copies, the bytes from one to the next, and their number.
struct Slots {
  const std::uint8_t* payload;
  const std::uint8_t* scales;
  long long payload_pitch, scales_pitch, count;
};

void delay(unsigned nanoseconds, cudaStream_t stream);
// What a matmul that gathers its rows would read: payload and scales of each row in place, by `rows.gather`.
void gather_rows(const Setting& setting, const Rows& rows, const Slots& slots, cudaStream_t stream);
// Fills scratch.results with what the experts answer: rows by_source with what they add up to.
void check_rows(const Setting& setting, const Round& round, const Inputs& inputs, const Rows& rows,
                const Scratch& scratch, Verdict* verdict, cudaStream_t stream);
// Fills scratch.results for rows that are not there any more.
void make_results(const Setting& setting, const Round& round, const Inputs& inputs, const Scratch& scratch,
                  Verdict* verdict, cudaStream_t stream);
// `sums`: bf16 or float32 [n, hidden].
void check_sums(const Setting& setting, const Round& round, const Inputs& inputs, const void* sums, bool wide,
                Verdict* verdict, cudaStream_t stream);
// Changes one byte, so that a check has something to find.
void damage(void* memory, std::size_t byte, cudaStream_t stream);

}  // namespace ferry::stress
