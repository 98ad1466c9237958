// Arithmetic on rows of bf16 and float32 at the speed of this machine's vectors. Same bits at every vector width:
// float32 operations are rounded one by one and never contracted.
#pragma once

#include <cstdint>

namespace ferry::cpu {

// acc[i] = acc[i] + (weight * row[i])
void accumulate_bf16(const std::uint16_t* row, float weight, float* acc, int count);
void accumulate_f32(const float* row, float weight, float* acc, int count);

// Nearest bf16, ties to even; a NaN stays a NaN.
void round_to_bf16(const float* values, std::uint16_t* out, int count);
void widen_bf16(const std::uint16_t* row, float* out, int count);

// NaNs and infinities among the values.
int count_non_finite(const std::uint16_t* bf16, int count);
int count_non_finite(const float* values, int count);

}  // namespace ferry::cpu
