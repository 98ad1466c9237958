// The caller's tensors of one call as the steps see them: raw pointers and strides, checked before the first step. All
// plain data, so that it travels to a kernel by value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/formats/row_sum.h"
#include "ferry/formats/portable.h"
#include "ferry/shape.h"
#include "ferry/tensor.h"

namespace ferry {

// topk_ids as the caller gave them.
struct TopkIds {
  const void* data = nullptr;
  bool is_i64 = false;  // else int32

  FERRY_HD const std::byte* address(std::int64_t index) const {
    return static_cast<const std::byte*>(data) + index * (is_i64 ? 8 : 4);
  }
  FERRY_HD std::int64_t at(std::int64_t index) const {
    return is_i64 ? static_cast<const std::int64_t*>(data)[index] : static_cast<const std::int32_t*>(data)[index];
  }
};

// Router weights: an array, a function, or 1.
struct Weights {
  const float* data = nullptr;  // [n, K]
  float (*hook)(void* context, int token, int k) = nullptr;
  void* context = nullptr;
  int top_k = 0;
  DType dtype = DType::f32;  // of `data`. Only kernels read narrower ones, and widen each (f32_weight)

  bool are_given() const { return data != nullptr || hook != nullptr; }
  FERRY_HD float at(int token, int k) const { return hook != nullptr ? hook(context, token, k) : given(token, k); }
  FERRY_HD float given(int token, int k) const {
    return data == nullptr ? 1.0f : data[static_cast<std::int64_t>(token) * top_k + k];
  }
};

// Own tokens that go to the fused shared expert's group.
struct SharedTokens {
  int begin = 0;
  int end = 0;
};

// Scales of tokens that the caller encoded. All numbers but `count` are bytes.
struct GivenScales {
  const std::byte* data = nullptr;
  std::int64_t token_stride = 0;  // from one token to the next
  std::int64_t scale_stride = 0;  // from one scale of a token to the next
  int bytes = 0;                  // of a scale
  int count = 0;                  // of a token; 0 where the format has no scales
};

struct DispatchArgs {
  const std::byte* tokens = nullptr;
  DType dtype = DType::bf16;    // u8: encoded by the caller
  std::int64_t row_stride = 0;  // bytes from one token to the next
  std::int64_t row_bytes = 0;   // of a token, or of its payload
  GivenScales scales;
  const float* global_scales = nullptr;  // of encoded tokens, where each has one
  int num_tokens = 0;
  TopkIds ids;
  const std::int32_t* expert_counts = nullptr;  // of a dispatch by counts, whose ids name ranks; else null
  const std::uint8_t* in_rank = nullptr;        // device memory, of which a kernel makes those ids; else null
  Weights weights;
  int format = 0;  // DispatchInput::format; CPU ranks only
  float input_scale = 1.0f;
  const float* input_scale_at = nullptr;  // device memory: read by the kernel in place of input_scale
  int shared_begin = 0;                   // own tokens that go to the fused shared expert's group
  int shared_end = 0;

  FERRY_HD bool is_encoded() const { return dtype == DType::u8; }
  FERRY_HD SharedTokens shared() const { return {shared_begin, shared_end}; }
  FERRY_HD float scale() const { return input_scale_at == nullptr ? input_scale : *input_scale_at; }
};

// A tensor that combine adds to its sums.
struct Bias {
  const std::byte* data = nullptr;  // null: none
  std::int64_t token_bytes = 0;     // from one token to the next
  DType dtype = DType::bf16;        // bf16, f16 or f32
};

struct CombineArgs {
  const std::byte* rows = nullptr;
  std::int64_t row_stride = 0;  // bytes from one row to the next
  std::uint32_t num_rows = 0;
  DType dtype = DType::bf16;  // of the rows: bf16, f16 or f32
  Weights weights;            // of exact, or late
  bool exact = false;         // every row goes home; else a sum of this rank's rows
  int shared_begin = 0;
  int shared_end = 0;
  Bias bias[kMaxBias];
  int num_bias = 0;
  bool by_last_k = false;              // SumOrder::by_last_k
  bool applies_weights = true;         // by_rank: of the dispatch
  bool has_row_weights_of_k = false;   // row_weights is [rows, K], as rows by_source have it
  std::uint32_t num_row_weights = 0;   // rows that have some
  const float* row_weights = nullptr;  // that go home: [rows], by_source [rows, K]; null: none

  FERRY_HD SumRow bias_row(int index, int token) const {
    return {bias[index].data + token * bias[index].token_bytes, 1.0f, bias[index].dtype};
  }
  FERRY_HD float weight_of(float of_dispatch) const { return applies_weights ? of_dispatch : 1.0f; }
  // If the caller gave too few rows, the last row stands for the missing ones. A GPU reports it after the call.
  FERRY_HD SumRow row(std::uint32_t index, float weight) const {
    const std::uint32_t there = index < num_rows ? index : num_rows - 1;
    return {rows + static_cast<std::int64_t>(there) * row_stride, weight, dtype};
  }
};

struct CombineOut {
  std::byte* tokens = nullptr;
  DType dtype = DType::bf16;
  std::int64_t token_bytes = 0;  // from one token to the next
  bool unreduced = false;
  float* weights = nullptr;           // [n, K]: the returned weights; null: not asked for
  std::int64_t* waited_ns = nullptr;  // [ranks]: waiting times are added to it; null: not asked for
  void (*epilogue)(void* context, int token, int column, const float* values, int count) = nullptr;
  void* context = nullptr;
};

}  // namespace ferry
