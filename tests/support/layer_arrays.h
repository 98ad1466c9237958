// The arrays of a small layer, for tests of the tool.
#pragma once

#include <cmath>
#include <random>
#include <vector>

#include "tool/layer/layer.h"

namespace ferry::test {

struct LayerSizes {
  int tokens = 40;
  int hidden = 128;
  int experts = 7;
  int top_k = 3;
  int inter = 48;
  int shared_inter = 0;
};

class LayerArrays {
 public:
  LayerArrays(const LayerSizes& sizes, unsigned seed) : sizes_(sizes) {
    std::mt19937 random(seed);
    const auto fill = [&](std::vector<float>& values, std::int64_t size, float deviation) {
      std::normal_distribution<float> normal(0.0f, deviation);
      values.resize(static_cast<std::size_t>(size));
      for (float& value : values) value = normal(random);
    };
    const std::int64_t hidden = sizes.hidden, inter = sizes.inter, shared = sizes.shared_inter;
    fill(x, sizes.tokens * hidden, 1.0f);
    fill(weights, std::int64_t{sizes.tokens} * sizes.top_k, 0.5f);
    fill(gate_up, sizes.experts * 2 * inter * hidden, 1 / std::sqrt(static_cast<float>(hidden)));
    fill(down, sizes.experts * hidden * inter, 1 / std::sqrt(static_cast<float>(inter)));
    fill(shared_gate_up, 2 * shared * hidden, 1 / std::sqrt(static_cast<float>(hidden)));
    fill(shared_down, shared * hidden, 0.15f);
    // Distinct experts, some of them none, and the last expert without any token.
    for (int token = 0; token < sizes.tokens; ++token)
      for (int k = 0; k < sizes.top_k; ++k) {
        const int expert = (token * token + k) % std::max(1, sizes.experts - 1);
        ids.push_back(random() % 8 == 0 || k >= sizes.experts - 1 ? -1 : expert);
      }
  }

  // A view of these arrays.
  app::Layer layer() const {
    app::Layer layer;
    layer.tokens = sizes_.tokens;
    layer.hidden = sizes_.hidden;
    layer.experts = sizes_.experts;
    layer.top_k = sizes_.top_k;
    layer.inter = sizes_.inter;
    layer.x = x.data();
    layer.ids = ConstTensor(ids.data(), DType::i32, {sizes_.tokens, sizes_.top_k});
    layer.weights = weights.data();
    layer.gate_up = gate_up.data();
    layer.down = down.data();
    layer.shared_inter = sizes_.shared_inter;
    layer.shared_gate_up = sizes_.shared_inter == 0 ? nullptr : shared_gate_up.data();
    layer.shared_down = sizes_.shared_inter == 0 ? nullptr : shared_down.data();
    return layer;
  }
  std::size_t output_size() const {
    return static_cast<std::size_t>(sizes_.tokens) * static_cast<std::size_t>(sizes_.hidden);
  }

  std::vector<float> x, weights, gate_up, down, shared_gate_up, shared_down;
  std::vector<std::int32_t> ids;

 private:
  LayerSizes sizes_;
};

}  // namespace ferry::test
