// The arithmetic of combine, for all backends. acc starts as +0. For each row in order, acc = acc + (weight * row): two
// float32 operations, each rounded, never contracted. The sum is rounded once more to bf16 or f16; float32 sums and
// those for an epilogue are not.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/formats/rounded.h"
#include "ferry/formats/input_row.h"
#include "ferry/formats/portable.h"
#include "ferry/formats/thread_group.h"
#include "ferry/tensor.h"

namespace ferry {

FERRY_HD constexpr float bf16_to_float(std::uint16_t bits) {
  return codec::float_of(static_cast<std::uint32_t>(bits) << 16);
}
FERRY_HD constexpr std::uint16_t float_to_bf16(float value) {
  return static_cast<std::uint16_t>(codec::bf16_of(codec::bits_of(value)));
}

// An element of a row of sums, which are bf16, f16 or f32. Kernels of f16 sums have stores of their own
// (cuda/team/f16_ops.cuh).
FERRY_HD inline void store_value(std::byte* row, DType dtype, int column, float value) {
#if !defined(__CUDA_ARCH__)
  if (dtype == DType::f16) {
    reinterpret_cast<std::uint16_t*>(row)[column] = codec::f16_of(codec::bits_of(value));
    return;
  }
#endif
  if (dtype == DType::f32)
    reinterpret_cast<float*>(row)[column] = value;
  else
    reinterpret_cast<std::uint16_t*>(row)[column] = float_to_bf16(value);
}

struct SumRow {
  const std::byte* data;
  float weight;
  DType dtype;  // bf16, f16 or f32. Kernels read f16 rows in f16_ops.cuh, and results that are still encoded: u8

  FERRY_HD bool is_f32() const { return dtype == DType::f32; }
  FERRY_HD float at(int column) const {
#if !defined(__CUDA_ARCH__)
    if (dtype == DType::f16)
      return codec::float_of(float_bits_of_f16(reinterpret_cast<const std::uint16_t*>(data)[column]));
#endif
    return is_f32() ? reinterpret_cast<const float*>(data)[column]
                    : bf16_to_float(reinterpret_cast<const std::uint16_t*>(data)[column]);
  }
};

// Where a sum goes.
struct RowSink {
  std::byte* data = nullptr;
  DType dtype = DType::bf16;  // bf16, f16 or f32; not used with an epilogue
  void (*epilogue)(void* context, int token, int column, const float* values, int count) = nullptr;
  void* context = nullptr;
  int token = 0;

  FERRY_HD void store(int column, const float* values, int count) const {
    if (epilogue != nullptr) return epilogue(context, token, column, values, count);
    for (int i = 0; i < count; ++i) store_value(data, dtype, column + i, values[i]);
  }
};

template <ThreadGroup G>
FERRY_HD void sum_rows(const G& g, const SumRow* rows, int count, int hidden, const RowSink& sink) {
  constexpr int kColumns = 8;
  for (int column = g.thread() * kColumns; column < hidden; column += g.size() * kColumns) {
    float sum[kColumns] = {};
    for (int i = 0; i < count; ++i)
      for (int c = 0; c < kColumns; ++c)
        sum[c] = codec::add_rounded(sum[c], codec::multiply_rounded(rows[i].weight, rows[i].at(column + c)));
    sink.store(column, sum, kColumns);
  }
}

// Converts a row to bf16, f16 or f32. Zeros keep their signs, and NaNs of a bf16 row that stays bf16 their bits.
template <ThreadGroup G>
FERRY_HD void convert_row(const G& g, const SumRow& row, int hidden, std::byte* to, DType dtype) {
  const bool stays_bf16 = row.dtype == DType::bf16 && dtype == DType::bf16;
  for (int column = g.thread(); column < hidden; column += g.size()) {
    if (stays_bf16)
      reinterpret_cast<std::uint16_t*>(to)[column] = reinterpret_cast<const std::uint16_t*>(row.data)[column];
    else
      store_value(to, dtype, column, row.at(column));
  }
}

}  // namespace ferry
