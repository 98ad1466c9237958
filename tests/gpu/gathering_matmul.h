// A grouped matmul that gathers its rows from the arrival slots, as an engine's would, and the work of a slow rank.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ferry/formats/portable.h"

namespace ferry::test {

// out[row, column] = the sum over h of slot(gather[row])[h] * weight(expert of the row, h, column), h ascending, each
// step fused; 0 in padding. Addresses are of device memory.
struct GatheringMatmul {
  const std::uint16_t* slots = nullptr;  // bf16
  std::int64_t slot_stride = 0;          // columns from one slot to the next
  const std::int32_t* gather = nullptr;
  const std::uint32_t* row_offsets = nullptr;  // [groups + 1]
  int groups = 0;
  int hidden = 0;
  int columns = 0;
  float* out = nullptr;  // [rows, columns]
};
// Small whole numbers of both signs.
FERRY_HD constexpr float matmul_weight(int group, int h, int column) {
  return static_cast<float>((group * 7 + h * 3 + column * 5) % 9 - 4);
}

// On the current device, before the first launch.
void load_gathering_matmul();
void launch_gathering_matmul(const GatheringMatmul& matmul, cudaStream_t stream);
// Takes at least so many microseconds.
void launch_delay(int microseconds, cudaStream_t stream);

}  // namespace ferry::test
