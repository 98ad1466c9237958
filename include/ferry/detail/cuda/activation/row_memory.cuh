// RowMemory, where a block of threads has a row of a format that encodes and decodes whole rows only; and the group
// that a row belongs to.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/token_format.h"

namespace ferry::cuda {

// A row in a block's shared memory: its columns, its codes and its scales, each from a multiple of 16 bytes.
template <TokenFormat F>
struct RowMemory {
  float* values;
  std::byte* payload;
  std::byte* scales;

  __device__ RowMemory(std::byte* memory, int columns)
      : values(reinterpret_cast<float*>(memory)),
        payload(memory + value_bytes(columns)),
        scales(payload + payload_bytes(columns)) {}

  static std::size_t bytes(int columns) {
    const std::size_t scale_bytes =
        static_cast<std::size_t>(scales_per_row(F{}, columns)) * static_cast<std::size_t>(F{}.scale_bytes());
    return value_bytes(columns) + payload_bytes(columns) + aligned(scale_bytes);
  }

 private:
  FERRY_HD static constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 15) / 16 * 16; }
  FERRY_HD static constexpr std::size_t value_bytes(int columns) { return static_cast<std::size_t>(columns) * 4; }
  FERRY_HD static constexpr std::size_t payload_bytes(int columns) { return aligned(F{}.payload_bytes(columns)); }
};

// The last of the groups that do not begin behind the row.
__device__ inline int group_with_row(const std::uint32_t* row_offsets, int groups, std::uint32_t row) {
  int group = 0;
  int end = groups;
  while (end - group > 1) {
    const int middle = (group + end) / 2;
    (row_offsets[middle] <= row ? group : end) = middle;
  }
  return group;
}

}  // namespace ferry::cuda
