// What experts on a GPU compute, planned on the host: which rows each expert takes at a time, by which matrix products,
// and how far these may be from exact ones. Nothing here needs a GPU.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tool/layer/base/layer_plan.h"
#include "tool/layer/experts/experts.h"

namespace ferry::app {

// swiglu takes a multiple of this many columns. The matrices of an expert are padded with zeros up to it.
inline constexpr int kExpertColumns = 32;
constexpr int padded_inter(int inter) { return (inter + kExpertColumns - 1) / kExpertColumns * kExpertColumns; }

// Some rows of one expert.
struct ExpertStep {
  int group = 0;
  std::int64_t first = 0;   // in ExpertPlan::rows
  int count = 0;            // at least 1
  std::int64_t result = 0;  // the line of their first result; the others follow it
  friend bool operator==(const ExpertStep&, const ExpertStep&) = default;
};

// The work on the rows that a dispatch brought.
struct ExpertPlan {
  std::vector<std::uint32_t> rows;    // of which arrived row each line of the products is, one step after the other
  std::vector<ExpertStep> steps;      // none for an expert without rows
  std::vector<std::int32_t> results;  // by_source: the line of the result of each (row, k), or -1; else empty
};

// Rows that lie expert by expert: `groups` are the rows of each, without padding. The result of a row has its place.
ExpertPlan plan_by_expert(std::span<const TokenSpan> groups, int rows_at_once);
// Rows by_source: `ids` are row_topk_ids, [rows, top_k]. Results lie expert by expert.
ExpertPlan plan_by_source(std::span<const std::int32_t> ids, int top_k, int groups, int rows_at_once);

// One call of the BLAS: `batch` products of `depth` columns each, from column `first` on. Product i is written to
// partial `partial + i`:
//   partial[rows, columns] = in[rows, first + i * depth ...] · matrix[columns, first + i * depth ...]^T, float32
struct Product {
  int rows = 0;
  int columns = 0;
  int depth = 0;
  int batch = 0;
  int first = 0;
  int partial = 0;
  friend bool operator==(const Product&, const Product&) = default;
};
// out[rows, columns] = in[rows, depth] · matrix[columns, depth]^T is the sum of num_partials(depth) partials, added in
// their order. Each is of kProductStep columns at most, so that the order within one, which the BLAS chooses, matters
// little.
std::vector<Product> products_of(int rows, int columns, int depth);
constexpr int num_partials(int depth) { return (depth + kProductStep - 1) / kProductStep; }

// How many rows the products take at a time, so that the partials of either matrix fit in about half a GiB.
int rows_at_once(int hidden, int inter);
// float32 values of all partials of so many rows.
std::int64_t partial_values(int hidden, int inter, int rows);

// The bound of a sum of n products (docs/numerics-of-experts.md derives it). A GPU's matrix units add at least four
// products to a sum at a time, and cut all these numbers, and what comes out, to the last place of the largest: less
// than 3 * 2^-24 of the sum of magnitudes for each product. Partials are added by rounded additions.
double gpu_sum_error(int n);
// The GPU's sigmoid is within 2^-21 + |gate| 2^-23 (swiglu_math.h); two roundings follow.
double gpu_activation_error(double gate);
// Gates below -87.3 give 0.
inline constexpr double kGpuLostSilu = 0x1p-119;

}  // namespace ferry::app
