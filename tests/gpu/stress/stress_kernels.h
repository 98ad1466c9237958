// The kernels of the stress program: inputs out of a seed, delays, and an oracle that computes every row and every sum
// again from the seed, by brute force and with no code of the library.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace ferry::stress {

inline constexpr int kMostRanks = 16;

enum class Format { bf16, fp8_block128, mxfp8 };

// What is the same in all rounds of a segment. `T` is max_tokens; pointers are to device memory of the rank.
struct Setting {
  int ranks, rank, experts, top_k, max_tokens, hidden;
  Format format;
  bool exact, shared;
  int alignment, groups, first_expert;
  long long capacity;
  const int* owner;  // [experts]: the rank of each
};

// One round: how many tokens each rank has, and the seed of all values.
struct Round {
  unsigned number;
  unsigned seed;
  int tokens[kMostRanks];
};

struct Inputs {
  std::uint16_t* tokens;  // bf16 [n, hidden]
  int* ids;               // [n, K]
  float* weights;         // [n, K]
  int* all_ids;           // [ranks, T, K]: of every rank, for the oracle
};

struct Rows {
  const std::uint8_t* payload;
  const std::uint8_t* scales;
  const unsigned* row_offsets;
  const int* expert_ids;
  const int* src_info;
  std::uint8_t poison;  // what every byte was before
};

enum class Wrong : int { none, row_offsets, expert_ids, src_info, payload, scale, padding, sum };
const char* to_string(Wrong wrong);

// What the oracle found; the fields after `mismatches` describe the first one.
struct Verdict {
  unsigned long long rows_checked;
  unsigned long long sums_checked;
  unsigned long long mismatches;
  Wrong wrong;
  unsigned round;
  int place;   // row, group or token
  int column;  // or block, or -1
  unsigned expected, got;
};

void make_inputs(const Setting& setting, const Round& round, const Inputs& inputs, cudaStream_t stream);
void delay(unsigned nanoseconds, cudaStream_t stream);
// `starts` [groups + 1] and `counts` [groups] are scratch. Fills `results`, bf16 [capacity, hidden], with what the
// experts answer.
void check_rows(const Setting& setting, const Round& round, const Inputs& inputs, const Rows& rows, unsigned* starts,
                unsigned* counts, std::uint16_t* results, Verdict* verdict, cudaStream_t stream);
// `sums`: bf16 or float32 [n, hidden].
void check_sums(const Setting& setting, const Round& round, const Inputs& inputs, const void* sums, bool wide,
                Verdict* verdict, cudaStream_t stream);
// Changes one byte, so that a check has something to find.
void damage(void* memory, std::size_t byte, cudaStream_t stream);

}  // namespace ferry::stress
