// Included before everything else where the text of the kernels is compiled for emulated GPUs: CUDA's keywords and the
// built-in functions that the text uses. The compiler gets __CUDACC__ and __CUDA_ARCH__, so it takes the text of a GPU.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "support/emulated_gpu/device_calls.h"

#define __device__
#define __host__
#define __global__
#define __noinline__
#define __grid_constant__
#define __launch_bounds__(...)

namespace ferry::emulated {

// A coordinate of the running thread, as threadIdx.x.
template <class Index, Index ThreadView::*kIndex, unsigned Index::*kAxis>
struct Coordinate {
  operator unsigned() const { return current->*kIndex.*kAxis; }
};
template <class Index, Index ThreadView::*kIndex>
struct Coordinates {
  Coordinate<Index, kIndex, &Index::x> x;
  Coordinate<Index, kIndex, &Index::y> y;
  Coordinate<Index, kIndex, &Index::z> z;
};

}  // namespace ferry::emulated

inline constexpr ferry::emulated::Coordinates<uint3, &ferry::emulated::ThreadView::thread> threadIdx;
inline constexpr ferry::emulated::Coordinates<uint3, &ferry::emulated::ThreadView::block> blockIdx;
inline constexpr ferry::emulated::Coordinates<dim3, &ferry::emulated::ThreadView::block_size> blockDim;
inline constexpr ferry::emulated::Coordinates<dim3, &ferry::emulated::ThreadView::grid_size> gridDim;

// ---- arithmetic

template <class T>
constexpr T min(T a, std::type_identity_t<T> b) {
  return b < a ? b : a;
}
template <class T>
constexpr T max(T a, std::type_identity_t<T> b) {
  return a < b ? b : a;
}
inline int __popc(unsigned value) { return std::popcount(value); }
inline int __clz(int value) { return std::countl_zero(static_cast<unsigned>(value)); }
inline int __ffs(int value) { return value == 0 ? 0 : std::countr_zero(static_cast<unsigned>(value)) + 1; }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }

// ---- calls of a warp

namespace ferry::emulated {

template <class T>
std::uint64_t to_bits(T value) {
  static_assert(sizeof(T) <= 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
T of_bits(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline int own_lane() { return static_cast<int>((current->thread.x + current->thread.y * current->block_size.x) % 32); }
// Combines the values of the lanes that the call names.
template <class Combine>
unsigned combine_lanes(unsigned lanes, const char* what, unsigned value, const Combine& combine) {
  const std::uint64_t* values = meet(lanes, what, value);
  bool is_first = true;
  unsigned result = 0;
  for (int lane = 0; lane < 32; ++lane) {
    if ((lanes >> lane & 1u) == 0) continue;
    const auto each = static_cast<unsigned>(values[lane]);
    result = is_first ? each : combine(result, each);
    is_first = false;
  }
  return result;
}
template <class Holds>
unsigned lanes_where(unsigned lanes, const std::uint64_t* values, const Holds& holds) {
  unsigned found = 0;
  for (int lane = 0; lane < 32; ++lane)
    if ((lanes >> lane & 1u) != 0 && holds(values[lane])) found |= 1u << lane;
  return found;
}
template <class T>
T value_of_lane(unsigned lanes, const char* what, T value, int lane) {
  const std::uint64_t* values = meet(lanes, what, to_bits(value));
  if ((lanes >> lane & 1u) == 0) fail("a lane reads the value of a lane that the call does not name");
  return of_bits<T>(values[lane]);
}

}  // namespace ferry::emulated

inline void __syncwarp(unsigned lanes = 0xFFFFFFFFu) { ferry::emulated::meet(lanes, "__syncwarp", 0); }
inline unsigned __ballot_sync(unsigned lanes, int value) {
  const std::uint64_t* values = ferry::emulated::meet(lanes, "__ballot_sync", value != 0 ? 1 : 0);
  return ferry::emulated::lanes_where(lanes, values, [](std::uint64_t each) { return each != 0; });
}
inline int __all_sync(unsigned lanes, int value) {
  const std::uint64_t* values = ferry::emulated::meet(lanes, "__all_sync", value != 0 ? 1 : 0);
  return ferry::emulated::lanes_where(lanes, values, [](std::uint64_t each) { return each != 0; }) == lanes ? 1 : 0;
}
inline int __any_sync(unsigned lanes, int value) {
  const std::uint64_t* values = ferry::emulated::meet(lanes, "__any_sync", value != 0 ? 1 : 0);
  return ferry::emulated::lanes_where(lanes, values, [](std::uint64_t each) { return each != 0; }) != 0 ? 1 : 0;
}
template <class T>
unsigned __match_any_sync(unsigned lanes, T value) {
  const std::uint64_t own = ferry::emulated::to_bits(value);
  const std::uint64_t* values = ferry::emulated::meet(lanes, "__match_any_sync", own);
  return ferry::emulated::lanes_where(lanes, values, [own](std::uint64_t each) { return each == own; });
}
template <class T>
T __shfl_sync(unsigned lanes, T value, int lane) {
  return ferry::emulated::value_of_lane(lanes, "__shfl_sync", value, lane & 31);
}
template <class T>
T __shfl_xor_sync(unsigned lanes, T value, unsigned mask) {
  return ferry::emulated::value_of_lane(lanes, "__shfl_xor_sync", value,
                                        (ferry::emulated::own_lane() ^ static_cast<int>(mask)) & 31);
}
template <class T>
T __shfl_up_sync(unsigned lanes, T value, unsigned distance) {
  const int own = ferry::emulated::own_lane();
  const int from = own - static_cast<int>(distance);
  return ferry::emulated::value_of_lane(lanes, "__shfl_up_sync", value, from < 0 ? own : from);
}
template <class T>
T __shfl_down_sync(unsigned lanes, T value, unsigned distance) {
  const int own = ferry::emulated::own_lane();
  const int from = own + static_cast<int>(distance);
  return ferry::emulated::value_of_lane(lanes, "__shfl_down_sync", value, from > 31 ? own : from);
}
inline unsigned __reduce_add_sync(unsigned lanes, unsigned value) {
  return ferry::emulated::combine_lanes(lanes, "__reduce_add_sync", value,
                                        [](unsigned a, unsigned b) { return a + b; });
}
inline unsigned __reduce_min_sync(unsigned lanes, unsigned value) {
  return ferry::emulated::combine_lanes(lanes, "__reduce_min_sync", value,
                                        [](unsigned a, unsigned b) { return a < b ? a : b; });
}
inline unsigned __reduce_max_sync(unsigned lanes, unsigned value) {
  return ferry::emulated::combine_lanes(lanes, "__reduce_max_sync", value,
                                        [](unsigned a, unsigned b) { return a > b ? a : b; });
}
inline unsigned __reduce_or_sync(unsigned lanes, unsigned value) {
  return ferry::emulated::combine_lanes(lanes, "__reduce_or_sync", value, [](unsigned a, unsigned b) { return a | b; });
}

// ---- barriers, memory, time

inline void __syncthreads() {
  const auto& here = *ferry::emulated::current;
  ferry::emulated::sync(0, static_cast<int>(here.block_size.x * here.block_size.y), true, "__syncthreads");
}
inline int __isShared(const void* address) { return ferry::emulated::is_shared(address) ? 1 : 0; }
inline int __isGlobal(const void* address) { return ferry::emulated::is_shared(address) ? 0 : 1; }
inline void __nanosleep(unsigned) { ferry::emulated::look_at_clock(); }
#if !defined(__clang__)
inline void __builtin_assume(bool holds) { ferry::emulated::assume(holds); }
#endif

// Words that threads of a block or blocks of a GPU share (order.h).
template <class T>
T atomicAdd(T* word, T value) {
  ferry::emulated::touch_shared_word(true);
  return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
}
template <class T>
T atomicAdd_block(T* word, T value) {
  return atomicAdd(word, value);
}
template <class T>
T atomicOr_block(T* word, T value) {
  ferry::emulated::touch_shared_word(true);
  return __atomic_fetch_or(word, value, __ATOMIC_RELAXED);
}
template <class T>
T atomicMax(T* word, T value) {
  ferry::emulated::touch_shared_word(true);
  const T before = __atomic_load_n(word, __ATOMIC_RELAXED);
  if (before < value) __atomic_store_n(word, value, __ATOMIC_RELAXED);
  return before;
}
