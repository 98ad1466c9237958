// The oracle's half for combine: sums in the promised order, and in float64 with the bound on their error.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>

#include "conformance/oracle/oracle_parts.h"
#include "conformance/oracle/travel_errors.h"

namespace ferry::test {

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
    if (is_masked_out(round, rank) || is_gone(round, rank)) continue;
    for (std::size_t i = 0; i < rows[size(rank)].rows.size(); ++i) {
      const RowOrigin& row = rows[size(rank)].rows[i];
      if (row.source == source)
        terms[size(row.token)][size(row.k)] = {rank, expert_output[size(rank)].data() + i * size(round.shape.hidden),
                                               round.ranks[size(rank)].row_order == RowOrder::by_source};
    }
  }
  return terms;
}

// docs/formats.md: a block with a NaN or an infinity decodes to NaN. Said again here: the encoder is not the oracle's.
void spoil_blocks(const AnyFormat& format, const std::vector<float>& row, std::vector<float>& decoded) {
  const auto block = size(format.block());
  for (std::size_t column = 0; block != 0 && column < row.size(); ++column) {
    if (std::isfinite(row[column])) continue;
    const std::size_t first = column / block * block;
    std::fill(decoded.begin() + static_cast<std::ptrdiff_t>(first),
              decoded.begin() + static_cast<std::ptrdiff_t>(std::min(first + block, row.size())), NAN);
  }
}

// What a row is after its travel: encoded by the sender, decoded at home. nvfp4 has a scale for each row, which brings
// its largest magnitude to 2688.
std::vector<float> carried(const Round& round, const std::vector<float>& row) {
  const AnyFormat& format = round.options.result_format;
  std::vector<float> out(row.size());
  if (format.name() == std::string_view("bf16")) {
    for (std::size_t i = 0; i < row.size(); ++i) out[i] = from_bf16(to_bf16(row[i]));
    return out;
  }
  const int hidden = static_cast<int>(row.size());
  float inverse = 1.0f;
  if (format.name() == std::string_view("nvfp4")) {
    float largest = 0;
    for (const float value : row) largest = std::isfinite(value) ? std::max(largest, std::fabs(value)) : INFINITY;
    const float scale = 2688.0f / largest;
    if (std::isfinite(scale) && scale > 0) inverse = 1.0f / scale;
  }
  std::vector<std::max_align_t> payload(format.payload_bytes(hidden) / sizeof(std::max_align_t) + 1);
  std::vector<std::uint32_t> scales(size(scales_per_row(format, hidden)) + 1);
  auto* const codes = reinterpret_cast<std::byte*>(payload.data());
  auto* const of_blocks = reinterpret_cast<std::byte*>(scales.data());
  format.encode(SerialGroup{}, {row.data(), DType::f32}, hidden, 1.0f / inverse, codes, of_blocks);
  format.decode(SerialGroup{}, codes, of_blocks, hidden, 1.0f / inverse, out.data());
  spoil_blocks(format, row, out);
  return out;
}

std::vector<float> row_of(const Round& round, const Term& term) { return {term.row, term.row + round.shape.hidden}; }

float weight_of(const Round& round, const Term& term, int source, int token, int k) {
  if (term.is_sum) return 1.0f;
  const std::vector<float>& weights = round.ranks[size(source)].weights;
  return weights.empty() || !round.applies_weights ? 1.0f : weights[size(token * round.shape.top_k + k)];
}

void add(std::vector<float>& sum, float weight, const std::vector<float>& row) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] + (weight * row[i]);
}

std::vector<float> bias_sum(const Round& round, int source, int token) {
  std::vector<float> sum(size(round.shape.hidden));
  for (const std::vector<float>& bias : round.ranks[size(source)].bias) {
    const auto row = bias.begin() + static_cast<std::ptrdiff_t>(token) * round.shape.hidden;
    add(sum, 1.0f, {row, row + round.shape.hidden});
  }
  return sum;
}

// The ranks that have rows of a token, in the order of its sum.
std::vector<int> summed_ranks(const Round& round, const std::vector<Term>& terms, int source, int token) {
  const auto has_rows = [&](int rank) {
    return std::any_of(terms.begin(), terms.end() - 1, [&](const Term& term) { return term.rank == rank; });
  };
  const auto last_k = [&](int rank) {
    const std::int64_t first = first_expert(round.shape, rank);
    for (int k = round.shape.top_k - 1; k >= 0; --k) {
      const std::int64_t id = round.ranks[size(source)].topk_ids[size(token * round.shape.top_k + k)];
      if (id >= first && id < first + num_local_experts(round.shape, rank)) return k;
    }
    return -1;
  };
  std::vector<int> ranks;
  for (int rank = 0; rank < round.shape.ranks; ++rank)
    if (has_rows(rank)) ranks.push_back(rank);
  if (round.sum_order == SumOrder::by_last_k)
    std::sort(ranks.begin(), ranks.end(), [&](int a, int b) { return last_k(a) < last_k(b); });
  return ranks;
}

// The sum of a rank's rows of a token, before it travels.
std::vector<float> partial_sum(const Round& round, const std::vector<Term>& terms, int source, int token, int rank) {
  std::vector<float> partial(size(round.shape.hidden));
  for (int k = 0; k < round.shape.top_k; ++k)
    if (terms[size(k)].rank == rank)
      add(partial, weight_of(round, terms[size(k)], source, token, k), row_of(round, terms[size(k)]));
  return partial;
}

std::vector<float> sum_of(const Round& round, const std::vector<Term>& terms, int source, int token) {
  std::vector<float> sum = bias_sum(round, source, token);
  if (round.reduction == Reduction::exact) {
    for (int k = 0; k < round.shape.top_k; ++k)
      if (terms[size(k)].rank >= 0)
        add(sum, weight_of(round, terms[size(k)], source, token, k), carried(round, row_of(round, terms[size(k)])));
  } else {
    for (const int rank : summed_ranks(round, terms, source, token))
      add(sum, 1.0f, carried(round, partial_sum(round, terms, source, token, rank)));
  }
  if (terms.back().rank >= 0) add(sum, 1.0f, row_of(round, terms.back()));
  return sum;
}

// Adds what the travel of a row may change in each column.
void add_travel_error(const Round& round, const std::vector<float>& row, std::vector<double>& bound) {
  std::vector<double> reach(row.size());
  std::transform(row.begin(), row.end(), reach.begin(), [](float value) { return std::fabs(double{value}); });
  TravelErrors errors(round.options.result_format, static_cast<int>(row.size()));
  errors.find(reach);
  for (std::size_t i = 0; i < row.size(); ++i) bound[i] += errors[i];
}

}  // namespace

std::vector<float> expected_tokens(const Round& round, const std::vector<ExpectedRows>& rows,
                                   const ExpertOutput& expert_output, int rank) {
  std::vector<float> out;
  int token = 0;
  for (const std::vector<Term>& terms : terms_of(round, rows, expert_output, rank)) {
    const std::vector<float> sum = sum_of(round, terms, rank, token++);
    out.insert(out.end(), sum.begin(), sum.end());
  }
  return out;
}

std::vector<float> expected_weights(const Round& round, const std::vector<ExpectedRows>& rows,
                                    const std::vector<std::vector<float>>& row_weights, int rank) {
  const int top_k = round.shape.top_k;
  const std::size_t entries = size(round.ranks[size(rank)].num_tokens * top_k);
  std::vector<float> sums(entries);
  std::vector<bool> is_there(entries);
  const auto add_to = [&](std::size_t entry, float value) {
    sums[entry] = is_there[entry] ? sums[entry] + value : value;
    is_there[entry] = true;
  };
  for (int from = 0; from < round.shape.ranks; ++from) {
    const std::vector<float>& given = row_weights[size(from)];
    if (given.empty() || is_masked_out(round, from) || is_gone(round, from)) continue;
    const bool by_source = round.ranks[size(from)].row_order == RowOrder::by_source;
    for (std::size_t i = 0; i < rows[size(from)].rows.size(); ++i) {
      const RowOrigin& row = rows[size(from)].rows[i];
      const bool has_room = static_cast<std::int64_t>(i) < rows[size(from)].row_capacity;
      if (is_padding(row) || row.source != rank || !has_room) continue;
      for (int k = 0; by_source && k < top_k; ++k)
        add_to(size(row.token * top_k + k), given[i * size(top_k) + size(k)]);
      if (!by_source && row.k < top_k) add_to(size(row.token * top_k + row.k), given[i]);
    }
  }
  return sums;
}

std::vector<float> expected_unreduced(const Round& round, const std::vector<ExpectedRows>& rows,
                                      const ExpertOutput& expert_output, int rank) {
  std::vector<float> out;
  for (const std::vector<Term>& terms : terms_of(round, rows, expert_output, rank))
    for (int k = 0; k < round.shape.top_k; ++k) {
      std::vector<float> row(size(round.shape.hidden));
      if (terms[size(k)].rank >= 0) row = carried(round, row_of(round, terms[size(k)]));
      out.insert(out.end(), row.begin(), row.end());
    }
  return out;
}

Float64Tokens float64_tokens(const Round& round, const std::vector<ExpectedRows>& rows,
                             const ExpertOutput& expert_output, int rank) {
  Float64Tokens out;
  const std::size_t hidden = size(round.shape.hidden);
  int token = 0;
  for (const std::vector<Term>& terms : terms_of(round, rows, expert_output, rank)) {
    std::vector<double> sum(hidden), magnitude(hidden), bound(hidden);  // magnitude: A of docs/numerics-of-combine.md
    const auto add_term = [&](double weight, const float* row) {
      for (std::size_t i = 0; i < hidden; ++i) {
        sum[i] += weight * double{row[i]};
        magnitude[i] += std::fabs(weight * double{row[i]});
      }
    };
    for (const std::vector<float>& bias : round.ranks[size(rank)].bias)
      add_term(1.0, bias.data() + size(token) * hidden);
    for (int k = 0; k <= round.shape.top_k; ++k)
      if (terms[size(k)].rank >= 0)
        add_term(k == round.shape.top_k ? 1.0 : double{weight_of(round, terms[size(k)], rank, token, k)},
                 terms[size(k)].row);
    for (const int from : summed_ranks(round, terms, rank, token))
      add_travel_error(round, partial_sum(round, terms, rank, token, from), bound);
    for (std::size_t i = 0; i < hidden; ++i) {
      out.values.push_back(sum[i]);
      // 2^-17 covers the float32 sums: of at most 32 rows, and of at most 32 partial sums with two bias and a shared
      // row. 2^-128 covers partials and products too small for a normal number.
      out.by_rank_bound.push_back(bound[i] + 0x1p-17 * magnitude[i] + 0x1p-128);
    }
    ++token;
  }
  return out;
}

}  // namespace ferry::test
