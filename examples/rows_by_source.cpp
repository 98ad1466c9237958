// Rows by source: each token comes to a rank once, however many of its experts it names, and the rank sends home one
// row for it: its own weighted sum over its experts.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "all_ranks.h"

namespace {

constexpr int kHidden = 64, kTokens = 4, kTopK = 3;
constexpr ferry::Shape kShape{.ranks = 2, .experts = 8, .top_k = kTopK, .max_tokens = kTokens, .hidden = kHidden};

// Memory for what a dispatch fills: dispatch_outputs lists it.
class Rows {
 public:
  explicit Rows(const ferry::Exchange& exchange)
      : format_(exchange.options().format), layout_(exchange.layout()), capacity_(layout_.least_rows(kOrder)) {
    for (const ferry::TensorSpec& spec : ferry::dispatch_outputs(layout_, capacity_, kOrder))
      out_.*spec.field = {memory_.emplace_back(spec.bytes()).data(), spec.dtype, spec.shape};
    sums_.resize(static_cast<std::size_t>(capacity_) * kHidden);
  }
  const ferry::DispatchOutput& out() const { return out_; }
  ferry::CombineInput sums() const { return {.rows = {sums_.data(), ferry::DType::f32, {capacity_, kHidden}}}; }

  // Expert x multiplies by x + 1. `first`: the first expert of this rank.
  void run_experts(int first) {
    const auto rows = out_.source_offsets.as<std::uint32_t>()[layout_.sources];
    const auto* ids = out_.row_topk_ids.as<std::int32_t>();
    const auto* weights = out_.row_topk_weights.as<float>();
    std::vector<float> values(kHidden);
    for (std::size_t row = 0; row < rows; ++row) {
      ferry::decode_row(format_, layout_, out_, static_cast<std::int64_t>(row), values);
      float factor = 0;
      for (std::size_t k = 0; k < kTopK; ++k)
        if (ids[row * kTopK + k] >= 0)
          factor += weights[row * kTopK + k] * static_cast<float>(first + ids[row * kTopK + k] + 1);
      for (std::size_t column = 0; column < kHidden; ++column) sums_[row * kHidden + column] = values[column] * factor;
    }
  }

  static constexpr ferry::RowOrder kOrder = ferry::RowOrder::by_source;

 private:
  ferry::AnyFormat format_;
  ferry::RowLayout layout_;
  std::int64_t capacity_;
  std::vector<std::vector<std::byte>> memory_;
  ferry::DispatchOutput out_;
  std::vector<float> sums_;
};

bool run_rank(ferry::World& world) {
  ferry::Exchange exchange(world, kShape, {.row_orders = {Rows::kOrder}});
  Rows rows(exchange);
  const std::vector<float> tokens(kTokens * kHidden, 1.0f);
  const std::vector<std::int32_t> ids = {0, 1, 2, 3, 4, 5, 6, 7, 0, 1, -1, 6};  // -1: no expert
  const std::vector<float> weights(ids.size(), 0.5f);
  std::vector<float> home(kTokens * kHidden);
  exchange.dispatch({.tokens = {tokens.data(), ferry::DType::f32, {kTokens, kHidden}},
                     .topk_ids = {ids.data(), ferry::DType::i32, {kTokens, kTopK}},
                     .topk_weights = {weights.data(), ferry::DType::f32, {kTokens, kTopK}},
                     .row_order = Rows::kOrder},
                    rows.out());
  rows.run_experts(ferry::first_expert(kShape, world.rank()));
  exchange.combine(rows.sums(), {.tokens = {home.data(), ferry::DType::f32, {kTokens, kHidden}}});
  bool right = true;
  for (std::size_t token = 0; token < kTokens; ++token) {
    float expected = 0;
    for (std::size_t k = 0; k < kTopK; ++k)
      if (ids[token * kTopK + k] >= 0) expected += 0.5f * static_cast<float>(ids[token * kTopK + k] + 1);
    right = right && home[token * kHidden] == expected;
  }
  return right;
}

}  // namespace

int main() { return all_ranks_right(kShape.ranks, run_rank); }
