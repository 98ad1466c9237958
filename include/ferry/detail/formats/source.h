// Sources: where a codec reads its columns, as float32 bits. RowSource is a row of bf16, float16 or float32 in memory.
//
// A source offers load<N>(column, count, bits): bits[i] is the float32 value of column + i for i < count, and +0 above.
// count is N or a smaller multiple of 8. One thread can encode the columns of any such source.
//
// For groups of threads a source offers the same in two steps, so that a thread can load its next columns before it
// encodes the present ones. fetch<N>(column, count) reads count columns, none or a multiple of 16. expand(fetched,
// bits) converts them to float32 bits.
#pragma once

#include <cstddef>
#include <cstring>

#include "ferry/detail/formats/rounded.h"
#include "ferry/formats/input_row.h"

namespace ferry::codec {

struct Bf16Input {
  using Stored = std::uint16_t;
  FERRY_HD static constexpr std::uint32_t float_bits(Stored stored) { return float_bits_of_bf16(stored); }
  FERRY_HD static std::uint32_t number_bits(Stored stored) { return float_bits(stored); }
#if defined(__CUDA_ARCH__)
  // number_bits of the two in a word.
  __device__ static std::uint32_t first_bits(std::uint32_t pair) { return pair << 16; }
  __device__ static std::uint32_t second_bits(std::uint32_t pair) { return pair & 0xffff0000u; }
#endif
};

struct F16Input {
  using Stored = std::uint16_t;
  FERRY_HD static constexpr std::uint32_t float_bits(Stored stored) { return float_bits_of_f16(stored); }
  // The same, but any NaN for a NaN.
  FERRY_HD static std::uint32_t number_bits(Stored stored) {
#if defined(__CUDA_ARCH__)
    return bits_of(ptx::float_of_f16(stored));
#else
    return float_bits(stored);
#endif
  }
#if defined(__CUDA_ARCH__)
  __device__ static std::uint32_t first_bits(std::uint32_t pair) { return number_bits(static_cast<Stored>(pair)); }
  __device__ static std::uint32_t second_bits(std::uint32_t pair) {
    return number_bits(static_cast<Stored>(pair >> 16));
  }
#endif
};

struct F32Input {
  using Stored = std::uint32_t;
  FERRY_HD static constexpr std::uint32_t float_bits(Stored stored) { return stored; }
  FERRY_HD static std::uint32_t number_bits(Stored stored) { return stored; }
};

// Elements as they are in memory, read 16 bytes at a time.
template <class Stored, int kCount>
struct alignas(16) Fetched {
  Stored elements[kCount] = {};
};

// Two neighbouring elements of 2 bytes each: a register of a GPU.
template <class Stored, int kCount>
FERRY_HD inline std::uint32_t pair_at(const Fetched<Stored, kCount>& fetched, int pair) {
  static_assert(sizeof(Stored) == 2);
  return reinterpret_cast<const std::uint32_t*>(fetched.elements)[pair];
}

// Reads the first `count` elements, a multiple of 8, from a multiple of 16 bytes. Each vector has a condition of its
// own on a GPU: ptxas 13.0 compiles a loop over the rest of a row so that it reads past the row's end.
template <int kCount, class Stored>
FERRY_HD inline void fetch_elements(const Stored* from, int count, Fetched<Stored, kCount>& fetched) {
#if defined(__CUDA_ARCH__)
  constexpr int kPerVector = 16 / static_cast<int>(sizeof(Stored));
#pragma unroll
  for (int v = 0; v < kCount / kPerVector; ++v)
    if (v * kPerVector < count) reinterpret_cast<uint4*>(fetched.elements)[v] = reinterpret_cast<const uint4*>(from)[v];
#else
  std::memcpy(fetched.elements, from, static_cast<std::size_t>(count) * sizeof(Stored));
#endif
}

template <class Input>
struct RowSource {
  using Element = Input;
  using Stored = typename Input::Stored;
  const Stored* data;

  template <int kCount>
  FERRY_HD void load(int column, int count, std::uint32_t (&bits)[kCount]) const {
    const Stored* from = data + column;
    if (count == kCount) {
      for (int i = 0; i < kCount; ++i) bits[i] = Input::float_bits(from[i]);
    } else {
      for (int i = 0; i < kCount; ++i) bits[i] = i < count ? Input::float_bits(from[i]) : 0u;
    }
  }

  // On a GPU the row starts at a multiple of 16 bytes.
  template <int kCount>
  FERRY_HD Fetched<Stored, kCount> fetch(int column, int count) const {
    static_assert(kCount % 8 == 0, "16 bytes at a time");
    Fetched<Stored, kCount> fetched;
    fetch_elements(data + column, count, fetched);
    return fetched;
  }

  template <int kCount>
  FERRY_HD static void expand(const Fetched<Stored, kCount>& fetched, std::uint32_t (&bits)[kCount]) {
    for (int i = 0; i < kCount; ++i) bits[i] = number_bits_at(fetched, i);
  }

 private:
  // On a GPU two elements come from one register. nvcc does not find that by itself.
  template <int kCount>
  FERRY_HD static std::uint32_t number_bits_at(const Fetched<Stored, kCount>& fetched, int i) {
#if defined(__CUDA_ARCH__)
    if constexpr (sizeof(Stored) == 2) {
      const std::uint32_t pair = pair_at(fetched, i / 2);
      return i % 2 == 0 ? Input::first_bits(pair) : Input::second_bits(pair);
    } else
#endif
    {
      return Input::number_bits(fetched.elements[i]);
    }
  }
};

// Calls use(source) with the source for the row's type, which the caller has checked.
template <class Use>
FERRY_HD int with_source(InputRow row, const Use& use) {
  if (row.dtype == DType::bf16) return use(RowSource<Bf16Input>{static_cast<const std::uint16_t*>(row.data)});
  if (row.dtype == DType::f16) return use(RowSource<F16Input>{static_cast<const std::uint16_t*>(row.data)});
  return use(RowSource<F32Input>{static_cast<const std::uint32_t*>(row.data)});
}

}  // namespace ferry::codec
