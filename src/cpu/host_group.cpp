// Sums of rows in pieces that stay in registers. The loops have a fixed trip count, so the compiler vectorises them,
// once for each instruction set; the machine's is chosen at load time. No contraction: -ffp-contract=off for the whole
// tree.
#include "cpu/host_group.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace ferry::cpu {
namespace {

constexpr int kColumns = 32;  // divides every hidden (ferry::kHiddenMultiple)

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define FERRY_EACH_TARGET __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FERRY_EACH_TARGET
#endif

FERRY_EACH_TARGET void add_bf16(const std::uint16_t* row, float weight, float* sum) {
  for (int c = 0; c < kColumns; ++c) {
    const std::uint32_t bits = static_cast<std::uint32_t>(row[c]) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    sum[c] = sum[c] + weight * value;
  }
}

FERRY_EACH_TARGET void sum_bf16_to_bf16(const SumRow* rows, int count, int hidden, std::uint16_t* out) {
  for (int column = 0; column < hidden; column += kColumns) {
    float sum[kColumns] = {};
    for (int i = 0; i < count; ++i) {
      const auto* row = reinterpret_cast<const std::uint16_t*>(rows[i].data) + column;
      const float weight = rows[i].weight;
      for (int c = 0; c < kColumns; ++c)
        sum[c] = sum[c] + weight * std::bit_cast<float>(static_cast<std::uint32_t>(row[c]) << 16);
    }
    for (int c = 0; c < kColumns; ++c) {
      const auto bits = std::bit_cast<std::uint32_t>(sum[c]);
      const std::uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
      const std::uint32_t nan = (bits >> 16) | 0x40u;
      out[column + c] = static_cast<std::uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded);
    }
  }
}

FERRY_EACH_TARGET void add_f32(const float* row, float weight, float* sum) {
  for (int c = 0; c < kColumns; ++c) sum[c] = sum[c] + weight * row[c];
}

}  // namespace

void sum_rows(const HostGroup&, const SumRow* rows, int count, int hidden, const RowSink& sink) {
  const bool all_bf16 = std::none_of(rows, rows + count, [](const SumRow& row) { return row.wide; });
  if (all_bf16 && sink.epilogue == nullptr && sink.dtype == DType::bf16)
    return sum_bf16_to_bf16(rows, count, hidden, reinterpret_cast<std::uint16_t*>(sink.data));
  for (int column = 0; column < hidden; column += kColumns) {
    float sum[kColumns] = {};
    for (int i = 0; i < count; ++i) {
      if (rows[i].wide)
        add_f32(reinterpret_cast<const float*>(rows[i].data) + column, rows[i].weight, sum);
      else
        add_bf16(reinterpret_cast<const std::uint16_t*>(rows[i].data) + column, rows[i].weight, sum);
    }
    sink.store(column, sum, kColumns);
  }
}

void convert_row(const HostGroup& g, const SumRow& row, int hidden, std::byte* to, DType dtype) {
  if (!row.wide && dtype == DType::bf16)
    std::memcpy(to, row.data, static_cast<std::size_t>(hidden) * sizeof(std::uint16_t));
  else
    ferry::convert_row(static_cast<const SerialGroup&>(g), row, hidden, to, dtype);
}

}  // namespace ferry::cpu
