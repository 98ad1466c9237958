// The oracle's half for combine: sums in the promised order, and in float64 with the bound on their error.
#include <cmath>
#include <cstring>

#include "conformance/oracle/oracle_parts.h"

namespace ferry::test {

std::uint16_t to_bf16(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  const std::uint32_t half = 0x7fffu + ((bits >> 16) & 1u);  // ties to even
  return static_cast<std::uint16_t>((bits + half) >> 16);
}

float from_bf16(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

namespace {

// A row of the experts' output that belongs to a token; `rank` is -1 where there is none. `is_sum`: it is the caller's
// own sum over the experts of the rank (by_source), which nobody multiplies.
struct Term {
  int rank = -1;
  const float* row = nullptr;
  bool is_sum = false;
};

// Terms of all tokens of `source`: [token][k], and the shared expert's at k = top_k.
std::vector<std::vector<Term>> terms_of(const Round& round, const std::vector<ExpectedRows>& rows,
                                        const ExpertOutput& expert_output, int source) {
  std::vector<std::vector<Term>> terms(size(round.ranks[size(source)].num_tokens),
                                       std::vector<Term>(size(round.shape.top_k + 1)));
  for (int rank = 0; rank < round.shape.ranks; ++rank) {
    if (is_masked_out(round, rank)) continue;
    for (std::size_t i = 0; i < rows[size(rank)].rows.size(); ++i) {
      const RowOrigin& row = rows[size(rank)].rows[i];
      if (row.source == source)
        terms[size(row.token)][size(row.k)] = {rank, expert_output[size(rank)].data() + i * size(round.shape.hidden),
                                               round.ranks[size(rank)].row_order == RowOrder::by_source};
    }
  }
  return terms;
}

// A routed row's value as the reduction uses it.
float value_of(const Round& round, const Term& term, int column) {
  const float value = term.row[column];
  return round.options.reduction == Reduction::exact ? from_bf16(to_bf16(value)) : value;
}

float weight_of(const Round& round, const Term& term, int source, int token, int k) {
  if (term.is_sum) return 1.0f;
  const std::vector<float>& weights = round.ranks[size(source)].weights;
  return weights.empty() ? 1.0f : weights[size(token * round.shape.top_k + k)];
}

float exact_sum(const Round& round, const std::vector<Term>& terms, int source, int token, int column) {
  float sum = 0;
  for (int k = 0; k < round.shape.top_k; ++k)
    if (terms[size(k)].rank >= 0)
      sum = sum + (weight_of(round, terms[size(k)], source, token, k) * value_of(round, terms[size(k)], column));
  return sum;
}

float by_rank_sum(const Round& round, const std::vector<Term>& terms, int source, int token, int column) {
  float sum = 0;
  for (int rank = 0; rank < round.shape.ranks; ++rank) {
    float partial = 0;
    bool has_rows = false;
    for (int k = 0; k < round.shape.top_k; ++k)
      if (terms[size(k)].rank == rank) {
        partial =
            partial + (weight_of(round, terms[size(k)], source, token, k) * value_of(round, terms[size(k)], column));
        has_rows = true;
      }
    if (has_rows) sum = sum + from_bf16(to_bf16(partial));
  }
  return sum;
}

}  // namespace

std::vector<float> expected_tokens(const Round& round, const std::vector<ExpectedRows>& rows,
                                   const ExpertOutput& expert_output, int rank) {
  std::vector<float> out;
  int token = 0;
  for (const std::vector<Term>& terms : terms_of(round, rows, expert_output, rank)) {
    for (int column = 0; column < round.shape.hidden; ++column) {
      float sum = round.options.reduction == Reduction::exact ? exact_sum(round, terms, rank, token, column)
                                                              : by_rank_sum(round, terms, rank, token, column);
      if (terms.back().rank >= 0) sum = sum + terms.back().row[column];
      out.push_back(sum);
    }
    ++token;
  }
  return out;
}

std::vector<float> expected_unreduced(const Round& round, const std::vector<ExpectedRows>& rows,
                                      const ExpertOutput& expert_output, int rank) {
  std::vector<float> out;
  for (const std::vector<Term>& terms : terms_of(round, rows, expert_output, rank))
    for (int k = 0; k < round.shape.top_k; ++k)
      for (int column = 0; column < round.shape.hidden; ++column)
        out.push_back(terms[size(k)].rank < 0 ? 0.0f : value_of(round, terms[size(k)], column));
  return out;
}

Float64Tokens float64_tokens(const Round& round, const std::vector<ExpectedRows>& rows,
                             const ExpertOutput& expert_output, int rank) {
  Float64Tokens out;
  int token = 0;
  for (const std::vector<Term>& terms : terms_of(round, rows, expert_output, rank)) {
    for (int column = 0; column < round.shape.hidden; ++column) {
      double sum = 0;
      double magnitude = 0;  // A: the sum of |weight * row|, the shared row with weight 1
      for (int k = 0; k <= round.shape.top_k; ++k) {
        if (terms[size(k)].rank < 0) continue;
        const Term& at = terms[size(k)];
        const bool shared = k == round.shape.top_k;
        const double term = shared ? double{at.row[column]}
                                   : double{weight_of(round, at, rank, token, k)} * double{value_of(round, at, column)};
        sum += term;
        magnitude += std::fabs(term);
      }
      out.values.push_back(sum);
      // With at most 32 rows and 32 ranks: (1 + g32)(1 + 2^-8)(1 + g32) - 1 < 2^-8 + 2^-17, where
      // g32 = 32 * 2^-24 / (1 - 32 * 2^-24) covers the float32 sums and 2^-8 a partial's rounding to bf16; 2^-128
      // covers partials and products too small for a normal number. docs/numerics-of-combine.md has the steps.
      out.by_rank_bound.push_back((0x1p-8 + 0x1p-17) * magnitude + 0x1p-128);
    }
    ++token;
  }
  return out;
}

}  // namespace ferry::test
