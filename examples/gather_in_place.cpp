// Rows in place: nothing is copied. A matmul reads each token from the slot where its message arrived, as `gather`
// says, and writes its results in the order of by_expert.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "all_ranks.h"

namespace {

constexpr int kHidden = 32, kTokens = 4, kTopK = 2;
constexpr ferry::Shape kShape{.ranks = 4, .experts = 8, .top_k = kTopK, .max_tokens = kTokens, .hidden = kHidden};

float from_bf16(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// y = W x, where W of expert x has x + 1 on the diagonal and 1 beside it.
void multiply(int expert, const std::uint16_t* x, float* y) {
  for (int row = 0; row < kHidden; ++row)
    y[row] = static_cast<float>(expert + 1) * from_bf16(x[row]) + from_bf16(x[(row + 1) % kHidden]);
}

class Layer {
 public:
  explicit Layer(const ferry::Exchange& exchange)
      : slots_(exchange.arrival_slots()),
        groups_(exchange.layout().groups),
        capacity_(exchange.layout().least_rows(kOrder)) {
    for (const ferry::TensorSpec& spec : ferry::dispatch_outputs(exchange.layout(), capacity_, kOrder))
      out_.*spec.field = {memory_.emplace_back(spec.bytes()).data(), spec.dtype, spec.shape};
    results_.resize(static_cast<std::size_t>(capacity_) * kHidden);
  }
  const ferry::DispatchOutput& out() const { return out_; }
  ferry::CombineInput results() const { return {.rows = {results_.data(), ferry::DType::f32, {capacity_, kHidden}}}; }

  // A grouped matmul that gathers. bf16 tokens; slots follow each other at one stride, also from copy to copy.
  void run_experts(int first) {
    const auto* offsets = out_.row_offsets.as<std::uint32_t>();
    const auto* gather = out_.gather.as<std::int32_t>();
    const auto* slots = slots_.payload.as<std::uint16_t>();
    for (int group = 0; group < groups_; ++group)
      for (std::size_t row = offsets[group]; row < offsets[group + 1]; ++row)
        if (gather[row] >= 0)  // else padding
          multiply(first + group, slots + gather[row] * slots_.payload.strides[2], &results_[row * kHidden]);
  }

  static constexpr ferry::RowOrder kOrder = ferry::RowOrder::in_place;

 private:
  ferry::ArrivalSlots slots_;
  int groups_;
  std::int64_t capacity_;
  std::vector<std::vector<std::byte>> memory_;
  ferry::DispatchOutput out_;
  std::vector<float> results_;
};

bool run_rank(ferry::World& world) {
  ferry::Exchange exchange(world, kShape, {});
  Layer layer(exchange);
  const std::vector<float> tokens(kTokens * kHidden, 2.0f);
  bool right = true;
  for (int round = 0; round < 3; ++round) {  // each round may use another copy of the slots; the view is the same
    std::vector<std::int32_t> ids;
    for (int token = 0; token < kTokens; ++token) {
      ids.push_back((world.rank() + token + round) % 8);
      ids.push_back((world.rank() + token + round + 3) % 8);
    }
    std::vector<float> home(kTokens * kHidden);
    exchange.dispatch({.tokens = {tokens.data(), ferry::DType::f32, {kTokens, kHidden}},
                       .topk_ids = {ids.data(), ferry::DType::i32, {kTokens, kTopK}},
                       .row_order = Layer::kOrder},
                      layer.out());
    layer.run_experts(ferry::first_expert(kShape, world.rank()));  // before the next dispatch begins
    exchange.combine(layer.results(), {.tokens = {home.data(), ferry::DType::f32, {kTokens, kHidden}}});
    for (std::size_t token = 0; token < kTokens; ++token) {
      const auto factor = static_cast<float>(ids[token * kTopK] + 2 + ids[token * kTopK + 1] + 2);
      right = right && home[token * kHidden] == 2 * factor;
    }
  }
  return right;
}

}  // namespace

int main() { return all_ranks_right(kShape.ranks, run_rank); }
