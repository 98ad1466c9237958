// The small kernels around the matrix products of experts on a GPU. All run on the current device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string_view>

#include "tool/io/bfloat16.h"
#include "tool/layer/rows/group_scales.h"

namespace ferry::app {

// Rows of one group as they arrived, decoded: decoded[i] = row rows[i] of the payload, float32 [count, hidden].
struct DecodeParams {
  const std::byte* payload = nullptr;
  std::int64_t row_bytes = 0;  // of a row of the payload
  GroupScales scales;
  const std::uint32_t* rows = nullptr;
  int count = 0;
  int hidden = 0;
  float input_scale = 1.0f;
  std::byte* row_scales = nullptr;  // room for the scales of `count` rows, in column order
  float* decoded = nullptr;
};

// A matrix [rows, columns] as the sum of `partials` float32 matrices, added in their order. The partials are `apart`
// values from each other and their rows `from_stride`. It is stored in float32 or bf16.
struct SumParams {
  const float* from = nullptr;
  std::int64_t from_stride = 0;
  std::int64_t apart = 0;
  int partials = 1;
  std::int64_t rows = 0;
  int columns = 0;
  float* to_f32 = nullptr;  // this, or
  Bf16* to_bf16 = nullptr;  // this
  std::int64_t to_stride = 0;
};

// Rows by_source: each is the sum over k of weight times result, k ascending, in rounded float32 operations; then bf16.
struct WeighParams {
  const Bf16* results = nullptr;        // [lines, hidden]
  const std::int32_t* lines = nullptr;  // [rows, top_k]: the line of a result, or -1
  const float* weights = nullptr;       // [rows, top_k]
  int top_k = 0;
  std::int64_t rows = 0;
  int hidden = 0;
  Bf16* to = nullptr;  // [rows, hidden]
};

// Loads the kernels, of decoding that of the format: CUDA would do so at the first launch, and wait there for others.
// Throws Error(unsupported) where the format is not one of the library's.
void load_expert_kernels(std::string_view format);
void decode_rows(std::string_view format, const DecodeParams& params, cudaStream_t stream);
void sum_partials(const SumParams& params, cudaStream_t stream);
void weigh_results(const WeighParams& params, cudaStream_t stream);

}  // namespace ferry::app
