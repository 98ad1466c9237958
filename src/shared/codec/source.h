// Where a codec's columns come from: a row in memory, of bf16, float16 or float32, read as float32 bits.
//
// A source offers load<N>(column, count, bits): bits[i] is the float32 value of column + i for i < count and +0 above.
// count is N or a smaller multiple of 8. Anything that can compute its columns in this way can be encoded.
#pragma once

#include <cstddef>

#include "ferry/input_row.h"
#include "shared/codec/rounded.h"

namespace ferry::codec {

struct Bf16Input {
  using Stored = std::uint16_t;
  FERRY_HD static constexpr std::uint32_t float_bits(Stored stored) { return float_bits_of_bf16(stored); }
};

struct F16Input {
  using Stored = std::uint16_t;
  FERRY_HD static constexpr std::uint32_t float_bits(Stored stored) { return float_bits_of_f16(stored); }
};

struct F32Input {
  using Stored = std::uint32_t;
  FERRY_HD static constexpr std::uint32_t float_bits(Stored stored) { return stored; }
};

template <class Input>
struct RowSource {
  using Stored = typename Input::Stored;
  const Stored* data;

  template <int kCount>
  FERRY_HD void load(int column, int count, std::uint32_t (&bits)[kCount]) const {
    const Stored* from = data + column;
    if (count == kCount) {
      load_full(from, bits);
    } else if constexpr (kCount ==
                         8) {  // so count is 0; ptxas 13.0 loads past the row where this is left to the loop below
      for (int i = 0; i < kCount; ++i) bits[i] = 0u;
    } else {
      for (int i = 0; i < kCount; ++i) bits[i] = i < count ? Input::float_bits(from[i]) : 0u;
    }
  }

 private:
  struct alignas(16) Vector {
    Stored elements[16 / sizeof(Stored)];
  };

  template <int kCount>
  FERRY_HD static void load_full(const Stored* from, std::uint32_t (&bits)[kCount]) {
#if defined(__CUDA_ARCH__)
    constexpr int kPerVector = 16 / static_cast<int>(sizeof(Stored));
    if (reinterpret_cast<std::uintptr_t>(from) % 16 == 0) {
      for (int v = 0; v < kCount / kPerVector; ++v) {
        const Vector vector = reinterpret_cast<const Vector*>(from)[v];
        for (int i = 0; i < kPerVector; ++i) bits[v * kPerVector + i] = Input::float_bits(vector.elements[i]);
      }
      return;
    }
#endif
    for (int i = 0; i < kCount; ++i) bits[i] = Input::float_bits(from[i]);
  }
};

// Calls use(source) with the source for the row's type. The caller has checked that it is one of the three.
template <class Use>
FERRY_HD int with_source(InputRow row, const Use& use) {
  if (row.dtype == DType::bf16) return use(RowSource<Bf16Input>{static_cast<const std::uint16_t*>(row.data)});
  if (row.dtype == DType::f16) return use(RowSource<F16Input>{static_cast<const std::uint16_t*>(row.data)});
  return use(RowSource<F32Input>{static_cast<const std::uint32_t*>(row.data)});
}

}  // namespace ferry::codec
