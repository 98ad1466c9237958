// Router weights as float32, whatever the caller gave: kernels read bf16 and f16 as they are, so no kernel ahead of
// them makes a copy.
#pragma once

#include <cstdint>

#include "ferry/detail/formats/source.h"
#include "ferry/detail/protocol/contracts/args.h"

namespace ferry::cuda {

// `index`: token * top_k + k. The weights are given.
__device__ inline float f32_weight(const Weights& weights, int index) {
  const auto* narrow = reinterpret_cast<const std::uint16_t*>(weights.data);
  if (weights.dtype == DType::bf16) return codec::float_of(codec::Bf16Input::float_bits(narrow[index]));
  if (weights.dtype == DType::f16) return codec::float_of(codec::F16Input::float_bits(narrow[index]));
  return weights.data[index];
}

// The same, and 1 where the caller gave none.
__device__ inline float given_weight(const Weights& weights, int index) {
  return weights.data == nullptr ? 1.0f : f32_weight(weights, index);
}

}  // namespace ferry::cuda
