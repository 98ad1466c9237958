// Values out of seeds: what every rank knows of every other rank's round.
#pragma once

#include <cuda_fp16.h>

#include "gpu/stress/stress_kernels.h"

namespace ferry::stress {

__device__ inline unsigned mix(unsigned x) {
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}
__device__ inline unsigned key_of(unsigned seed, unsigned stream, unsigned index) {
  return mix(seed ^ mix(stream * 0x9E3779B1u + index));
}

// bf16 bits of either sign, magnitudes 2^-7 to 2, now and then a zero.
__device__ inline std::uint16_t value_at(unsigned key, unsigned column) {
  const unsigned x = mix(key + column * 0x85EBCA6Bu);
  const unsigned magnitude = (x >> 20) % 61 == 0 ? 0u : 0x3C00u | (x & 0x03FFu);
  return static_cast<std::uint16_t>((x & 0x8000u) | magnitude);
}
__device__ inline float float_of_bf16(std::uint16_t bits) { return __uint_as_float(static_cast<unsigned>(bits) << 16); }
// Nearest even; finite values.
__device__ inline std::uint16_t bf16_of_float(float value) {
  const unsigned bits = __float_as_uint(value);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// A column of a token as it is given: bf16, or float16 of the same magnitudes with all of its mantissa; and its value.
__device__ inline std::uint16_t token_bits(const Setting& s, unsigned key, unsigned column) {
  if (!s.half) return value_at(key, column);
  const unsigned x = mix(key + column * 0x85EBCA6Bu);
  const unsigned magnitude = (x >> 20) % 61 == 0 ? 0u : 0x2000u | (x & 0x1FFFu);
  return static_cast<std::uint16_t>((x & 0x8000u) | magnitude);
}
__device__ inline float token_value(const Setting& s, unsigned key, unsigned column) {
  const std::uint16_t bits = token_bits(s, key, column);
  return s.half ? __half2float(__ushort_as_half(bits)) : float_of_bf16(bits);
}

__device__ inline unsigned token_key(const Setting& s, const Round& r, int source, int token) {
  return key_of(r.seed, 1, static_cast<unsigned>(source * s.max_tokens + token));
}
// The key of the k-th expert's answer; k = K is the shared expert.
__device__ inline unsigned result_key(const Setting& s, const Round& r, int source, int token, int k) {
  return key_of(r.seed, 2, static_cast<unsigned>((source * s.max_tokens + token) * (s.top_k + 1) + k));
}
__device__ inline float weight_at(const Setting& s, const Round& r, int source, int token, int k) {
  const unsigned x = key_of(r.routing_seed, 3, static_cast<unsigned>((source * s.max_tokens + token) * s.top_k + k));
  return static_cast<float>(x >> 8) * 0x1p-24f;
}

// Distinct ids, a tenth of them -1, some tokens with none. In one round of eight most tokens name neighbours: one rank.
__device__ inline int id_at(const Setting& s, const Round& r, int source, int token, int k) {
  const unsigned x = key_of(r.routing_seed, 4, static_cast<unsigned>(source * s.max_tokens + token));
  const unsigned missing = key_of(x, 5, static_cast<unsigned>(k));
  if (x % 37 == 0 || missing % 10 == 0) return -1;
  const auto experts = static_cast<unsigned>(s.experts);
  const unsigned widest = experts / static_cast<unsigned>(s.top_k);
  const unsigned step = r.routing % 8 == 0 ? 1 : 1 + (x >> 16) % widest;
  return static_cast<int>((mix(x) % experts + static_cast<unsigned>(k) * step) % experts);
}

}  // namespace ferry::stress
