// Static capacity: each expert has room for so many tokens and no more. Rows for which there is no room are dropped and
// counted. A token then gets what its other experts say.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "all_ranks.h"

namespace {

constexpr int kHidden = 64, kTokens = 6, kCapacity = 4;
constexpr ferry::Shape kShape{.ranks = 2, .experts = 4, .top_k = 2, .max_tokens = kTokens, .hidden = kHidden};

// Every token names expert 0, and one of the others.
int expert_of(int rank, int token, int k) { return k == 0 ? 0 : 1 + (rank + token) % 3; }

// What dispatch fills: what it needs, and how many rows were dropped.
class Outputs {
 public:
  explicit Outputs(const ferry::RowLayout& layout) {
    const std::int64_t rows = std::int64_t{layout.groups} * kCapacity;
    for (const ferry::TensorSpec& spec :
         dispatch_outputs(layout, rows, ferry::RowOrder::padded, kCapacity, ferry::OutputList::all)) {
      if (spec.is_optional && spec.field != &ferry::DispatchOutput::overflow) continue;
      arrivals.*spec.field = {memory_.emplace_back(spec.bytes()).data(), spec.dtype, spec.shape};
    }
  }

  ferry::DispatchOutput arrivals;

 private:
  std::vector<std::vector<std::byte>> memory_;
};

// Expert x multiplies by x + 1. `counts` are of all that came.
std::vector<float> run_experts(const ferry::Exchange& exchange, const ferry::DispatchOutput& arrivals) {
  const int groups = exchange.layout().groups, first = ferry::first_expert(kShape, exchange.rank());
  std::vector<float> results(static_cast<std::size_t>(groups) * kCapacity * kHidden);
  for (int group = 0; group < groups; ++group)
    for (int i = 0; i < std::min(arrivals.counts.as<std::int32_t>()[group], kCapacity); ++i) {
      const std::span<float> row(results.data() + (group * kCapacity + i) * kHidden, kHidden);
      decode_row(exchange.options().format, exchange.layout(), arrivals, group * kCapacity + i, row);
      for (float& value : row) value *= static_cast<float>(first + group + 1);
    }
  return results;
}

// Rows lie by source, then by token: so many entries before this one name its expert.
int entries_before(int rank, int token, int k) {
  int before = 0;
  for (int of = 0; of <= rank; ++of)
    for (int earlier = 0; earlier < (of < rank ? kTokens : token); ++earlier)
      for (int j = 0; j < kShape.top_k; ++j) before += expert_of(of, earlier, j) == expert_of(rank, token, k) ? 1 : 0;
  return before;
}

bool run_rank(ferry::World& world) {
  ferry::Exchange exchange(world, kShape);
  const int rank = world.rank();
  const std::vector<float> ones(std::size_t{kTokens} * kHidden, 1.0f);
  std::vector<std::int32_t> ids;
  for (int token = 0; token < kTokens; ++token)
    for (int k = 0; k < kShape.top_k; ++k) ids.push_back(expert_of(rank, token, k));
  std::vector<float> sums(ones.size());

  Outputs rows(exchange.layout());
  exchange.dispatch({.tokens = {ones.data(), ferry::DType::f32, {kTokens, kHidden}},
                     .topk_ids = {ids.data(), ferry::DType::i32, {kTokens, kShape.top_k}},
                     .row_order = ferry::RowOrder::padded,
                     .expert_stride = kCapacity,
                     .overflow = ferry::Overflow::expected},
                    rows.arrivals);
  const std::vector<float> results = run_experts(exchange, rows.arrivals);
  const std::int64_t num_rows = std::int64_t{exchange.layout().groups} * kCapacity;
  exchange.combine({.rows = {results.data(), ferry::DType::f32, {num_rows, kHidden}}},
                   {.tokens = {sums.data(), ferry::DType::f32, {kTokens, kHidden}}});

  // Expert 0 is rank 0's: of its 12 rows 4 have room. The others have 4 each, and all of them fit.
  bool right = *rows.arrivals.overflow.as<std::int32_t>() == (rank == 0 ? 2 * kTokens - kCapacity : 0);
  for (int token = 0; token < kTokens; ++token) {
    float expected = 0;
    for (int k = 0; k < kShape.top_k; ++k)
      if (entries_before(rank, token, k) < kCapacity) expected += static_cast<float>(expert_of(rank, token, k) + 1);
    right = right && sums[static_cast<std::size_t>(token) * kHidden] == expected;
  }
  return right;
}

}  // namespace

int main() { return all_ranks_right(kShape.ranks, run_rank); }
