// Kernels of the conversion tests: they count what differs, and encode rows as a dispatch does.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/tensor.h"

namespace ferry::test {

// How many of all bf16 values, times 2^-126 to 2^127 where a block would fit, the device's conversion encodes unlike
// Element::encode. `element`: "e4m3", "e4m3 by 8" (columns), "e2m3", "e3m2" or "e2m1". `example` is one such value and
// its multiplier.
struct Difference {
  std::uint64_t count = 0;
  std::uint32_t value = 0;
  float multiplier = 0;
};
Difference count_code_differences(const char* element);

// Counts for which float32 divisors of the codecs and activations the short division differs from IEEE's.
enum class Division { reciprocal, amax_by_448, of_448_by_amax };
Difference count_division_differences(Division division);

// Rows of one format encoded by a warp each. Host memory; scales one row after the other.
void encode_on_device(const char* format, const void* rows, DType dtype, int num_rows, int hidden, float input_scale,
                      std::byte* payload, std::byte* scales, std::uint32_t* non_finite);

// Encoded rows of one format decoded by a warp each. Host memory; rows of payload, scales and values at these distances
// in bytes, bytes and columns, the first two at multiples of 16. `values` is copied there before, and back.
struct EncodedRows {
  const std::byte* payload;
  const std::byte* scales;
  std::size_t payload_pitch, scale_pitch, value_pitch;
  int num_rows, hidden;
  float input_scale;
};
void decode_on_device(const char* format, const EncodedRows& rows, float* values);

}  // namespace ferry::test
