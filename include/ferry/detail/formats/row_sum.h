// The arithmetic of combine, for all backends. acc starts as +0. For each row in order, acc = acc + (weight * row): two
// float32 operations, each rounded, never contracted. The sum is rounded once more to bf16; float32 sums and those for
// an epilogue are not.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/formats/rounded.h"
#include "ferry/portable.h"
#include "ferry/tensor.h"
#include "ferry/thread_group.h"

namespace ferry {

FERRY_HD constexpr float bf16_to_float(std::uint16_t bits) {
  return codec::float_of(static_cast<std::uint32_t>(bits) << 16);
}
FERRY_HD constexpr std::uint16_t float_to_bf16(float value) {
  return static_cast<std::uint16_t>(codec::bf16_of(codec::bits_of(value)));
}

struct SumRow {
  const std::byte* data;  // bf16, or float32 where `is_f32`
  float weight;
  bool is_f32;

  FERRY_HD float at(int column) const {
    return is_f32 ? reinterpret_cast<const float*>(data)[column]
                  : bf16_to_float(reinterpret_cast<const std::uint16_t*>(data)[column]);
  }
};

// Where a sum goes.
struct RowSink {
  std::byte* data = nullptr;
  DType dtype = DType::bf16;  // bf16 or f32; not used with an epilogue
  void (*epilogue)(void* context, int token, int column, const float* values, int count) = nullptr;
  void* context = nullptr;
  int token = 0;

  FERRY_HD void store(int column, const float* values, int count) const {
    if (epilogue != nullptr) return epilogue(context, token, column, values, count);
    for (int i = 0; i < count; ++i) {
      if (dtype == DType::f32)
        reinterpret_cast<float*>(data)[column + i] = values[i];
      else
        reinterpret_cast<std::uint16_t*>(data)[column + i] = float_to_bf16(values[i]);
    }
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

// Converts a row to bf16 or float32. Zeros keep their signs.
template <ThreadGroup G>
FERRY_HD void convert_row(const G& g, const SumRow& row, int hidden, std::byte* to, DType dtype) {
  for (int column = g.thread(); column < hidden; column += g.size()) {
    if (dtype == DType::f32)
      reinterpret_cast<float*>(to)[column] = row.at(column);
    else
      reinterpret_cast<std::uint16_t*>(to)[column] =
          row.is_f32 ? float_to_bf16(row.at(column)) : reinterpret_cast<const std::uint16_t*>(row.data)[column];
  }
}

}  // namespace ferry
