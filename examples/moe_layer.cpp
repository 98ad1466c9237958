// A whole Mixture-of-Experts layer: tokens travel as mxfp8, each expert is w2 * swiglu(w13 * x), and what comes home is
// compared with the same layer computed on one rank in double precision.
#include <cmath>
#include <random>
#include <vector>

#include "all_ranks.h"
#include "rank_memory.h"

namespace {

constexpr int kHidden = 64;
constexpr int kInter = 32;
constexpr int kTokens = 6;
constexpr ferry::Shape kShape{.ranks = 4, .experts = 10, .top_k = 3, .max_tokens = kTokens, .hidden = kHidden};

std::vector<float> random_values(unsigned seed, int count, float deviation) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(engine);
  return values;
}
std::vector<float> gate_up_of(int expert) { return random_values(100u + unsigned(expert), 2 * kInter * kHidden, 0.1f); }
std::vector<float> down_of(int expert) { return random_values(200u + unsigned(expert), kHidden * kInter, 0.1f); }

// y = matrix * x, for a row-major matrix of `rows` rows.
template <class Value>
std::vector<Value> multiply(const std::vector<float>& matrix, const std::vector<Value>& x, int rows) {
  std::vector<Value> y(static_cast<std::size_t>(rows));
  for (std::size_t row = 0; row < y.size(); ++row)
    for (std::size_t column = 0; column < x.size(); ++column)
      y[row] += Value(matrix[row * x.size() + column]) * x[column];
  return y;
}

// The experts of this rank: gate and up, SwiGLU over all rows at once, down.
void run_experts(const ferry::World& world, RankMemory& memory, std::int64_t capacity) {
  std::vector<float> gate_up(static_cast<std::size_t>(capacity) * 2 * kInter);
  std::vector<std::uint16_t> activated(static_cast<std::size_t>(capacity) * kInter);
  const int first = ferry::first_expert(kShape, world.rank());
  memory.for_each_row([&](int group, std::int64_t row) {
    const std::vector<float> product = multiply(gate_up_of(first + group), memory.values(row), 2 * kInter);
    std::copy(product.begin(), product.end(), gate_up.begin() + row * 2 * kInter);
  });
  ferry::swiglu(ferry::format_named("bf16"),
                {.rows = {gate_up.data(), ferry::DType::f32, {capacity, 2 * kInter}},
                 .row_offsets = memory.arrivals().row_offsets},
                {.payload = {activated.data(), ferry::DType::bf16, {capacity, kInter}}});
  memory.for_each_row([&](int group, std::int64_t row) {
    std::vector<float> inner(kInter);
    for (int column = 0; column < kInter; ++column)
      inner[static_cast<std::size_t>(column)] =
          ferry::value_at({activated.data() + row * kInter, ferry::DType::bf16}, column);
    const std::vector<float> product = multiply(down_of(first + group), inner, kHidden);
    std::copy(product.begin(), product.end(), memory.result(row));
  });
}

std::vector<double> dense_expert(int expert, const std::vector<double>& x) {
  const std::vector<double> gate_up = multiply(gate_up_of(expert), x, 2 * kInter);
  std::vector<double> inner(kInter);
  for (std::size_t i = 0; i < kInter; ++i) inner[i] = gate_up[i] / (1 + std::exp(-gate_up[i])) * gate_up[i + kInter];
  return multiply(down_of(expert), inner, kHidden);
}

bool run_rank(ferry::World& world) {
  ferry::Exchange exchange(world, kShape, {.format = ferry::format_named("mxfp8")});
  RankMemory memory(exchange);
  const std::vector<float> tokens = random_values(unsigned(world.rank()), kTokens * kHidden, 1.0f);
  const std::vector<float> weights(kTokens * 3, 0.4f);
  std::vector<std::int32_t> ids;
  for (int token = 0; token < kTokens; ++token)
    for (int k = 0; k < 3; ++k) ids.push_back((world.rank() + 3 * token + 4 * k) % kShape.experts);

  exchange.dispatch({.tokens = {tokens.data(), ferry::DType::f32, {kTokens, kHidden}},
                     .topk_ids = {ids.data(), ferry::DType::i32, {kTokens, 3}},
                     .topk_weights = {weights.data(), ferry::DType::f32, {kTokens, 3}}},
                    memory.arrivals());
  run_experts(world, memory, exchange.layout().min_row_capacity);
  std::vector<float> output(kTokens * kHidden);
  exchange.combine(memory.results(), {.tokens = {output.data(), ferry::DType::f32, {kTokens, kHidden}}});

  double error = 0, energy = 0;
  for (int token = 0; token < kTokens; ++token) {
    const float* x = tokens.data() + token * kHidden;
    const float* y = output.data() + token * kHidden;
    std::vector<double> expected(kHidden);
    for (int k = 0; k < 3; ++k) {
      const std::vector<double> of_expert = dense_expert(*(ids.data() + 3 * token + k), {x, x + kHidden});
      for (std::size_t i = 0; i < kHidden; ++i) expected[i] += 0.4f * of_expert[i];
    }
    for (std::size_t i = 0; i < kHidden; ++i) {
      const double difference = y[i] - expected[i];
      error += difference * difference;
      energy += expected[i] * expected[i];
    }
  }
  return energy > 0 && std::sqrt(error / energy) < 0.06;  // mxfp8 keeps 3 bits after the leading one
}

}  // namespace

int main() { return all_ranks_right(kShape.ranks, run_rank); }
