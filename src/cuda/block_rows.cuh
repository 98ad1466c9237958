// A block's own copies and sums of rows: 16-byte vectors, several loads ahead of their use. The same bytes as the
// generic ones of shared/.
#pragma once

#include <cstdint>

#include "cuda/block_group.cuh"
#include "shared/copy.h"
#include "shared/row_sum.h"

namespace ferry::cuda {

// Reads the message once. Payload rows are 16-byte aligned where a row is a multiple of 16 bytes.
__device__ inline void copy_to_rows(const BlockGroup& g, std::byte* rows, std::size_t row_bytes,
                                    const std::uint32_t* row, int count, const std::byte* from, std::size_t bytes) {
  if (row_bytes % sizeof(uint4) != 0 || bytes % sizeof(uint4) != 0) {
    for (int i = 0; i < count; ++i) copy_bytes(g, rows + static_cast<std::size_t>(row[i]) * row_bytes, from, bytes);
    return;
  }
  const auto vectors = static_cast<int>(bytes / sizeof(uint4));
  for (int v = g.thread(); v < vectors; v += g.size()) {
    const uint4 value = reinterpret_cast<const uint4*>(from)[v];
    for (int i = 0; i < count; ++i)
      reinterpret_cast<uint4*>(rows + static_cast<std::size_t>(row[i]) * row_bytes)[v] = value;
  }
}

__device__ inline int once_in(const BlockGroup& g, int found) { return g.any(found != 0) && g.thread() == 0 ? 1 : 0; }

// Eight columns of a row that starts at a multiple of 16 bytes.
__device__ inline void load_eight(const SumRow& row, int column, float (&values)[8]) {
  if (row.wide) {
    const auto* from = reinterpret_cast<const float4*>(reinterpret_cast<const float*>(row.data) + column);
    const float4 low = from[0];
    const float4 high = from[1];
    values[0] = low.x, values[1] = low.y, values[2] = low.z, values[3] = low.w;
    values[4] = high.x, values[5] = high.y, values[6] = high.z, values[7] = high.w;
    return;
  }
  const uint4 packed = *reinterpret_cast<const uint4*>(reinterpret_cast<const std::uint16_t*>(row.data) + column);
  const std::uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = __uint_as_float(words[i] << 16);
    values[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000u);
  }
}

__device__ inline void store_eight(const RowSink& sink, int column, const float (&sum)[8]) {
  if (sink.epilogue != nullptr) return sink.epilogue(sink.context, sink.token, column, sum, 8);
  if (sink.dtype == DType::f32) {
    auto* to = reinterpret_cast<float4*>(reinterpret_cast<float*>(sink.data) + column);
    to[0] = make_float4(sum[0], sum[1], sum[2], sum[3]);
    to[1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
    return;
  }
  std::uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    words[i] = static_cast<std::uint32_t>(float_to_bf16(sum[2 * i])) |
               static_cast<std::uint32_t>(float_to_bf16(sum[2 * i + 1])) << 16;
  *reinterpret_cast<uint4*>(reinterpret_cast<std::uint16_t*>(sink.data) + column) =
      make_uint4(words[0], words[1], words[2], words[3]);
}

// As ferry::sum_rows: the same operations in the same order. Rows are loaded four at a time before they are added.
__device__ inline void sum_rows(const BlockGroup& g, const SumRow* rows, int count, int hidden, const RowSink& sink) {
  constexpr int kAhead = 4;
  for (int column = g.thread() * 8; column < hidden; column += g.size() * 8) {
    float sum[8] = {};
    for (int first = 0; first < count; first += kAhead) {
      float values[kAhead][8];
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
        if (first + i < count) load_eight(rows[first + i], column, values[i]);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (first + i >= count) break;
        const float weight = rows[first + i].weight;
#pragma unroll
        for (int c = 0; c < 8; ++c) sum[c] = __fadd_rn(sum[c], __fmul_rn(weight, values[i][c]));
      }
    }
    store_eight(sink, column, sum);
  }
}

}  // namespace ferry::cuda
