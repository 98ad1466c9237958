// Router weights as float32, whatever the caller gave.
#pragma once

#include <cstdint>

#include "ferry/detail/cuda/state/block_roles.h"
#include "ferry/detail/formats/source.h"
#include "ferry/detail/protocol/contracts/args.h"
#include "ferry/detail/protocol/contracts/work_share.h"

namespace ferry::cuda {

// Of blocks of kThreads.
__device__ inline FixedShare threads_of_grid() {
  return {static_cast<int>(blockIdx.x * kThreads + threadIdx.x), static_cast<int>(gridDim.x) * kThreads};
}

// `index`: token * top_k + k. The weights are given.
__device__ inline float wide_weight(const Weights& weights, int index) {
  const auto* narrow = reinterpret_cast<const std::uint16_t*>(weights.data);
  if (weights.dtype == DType::bf16) return codec::float_of(codec::Bf16Input::float_bits(narrow[index]));
  if (weights.dtype == DType::f16) return codec::float_of(codec::F16Input::float_bits(narrow[index]));
  return weights.data[index];
}

// Each weight by one thread.
__device__ inline void widen_weights(const Weights& weights, int count, float* to, const FixedShare& threads) {
  for (int i = threads.index; i < count; i += threads.count) to[i] = wide_weight(weights, i);
}

}  // namespace ferry::cuda
