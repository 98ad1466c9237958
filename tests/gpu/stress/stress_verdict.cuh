// What kernels of the oracle share: how they report, and the sum of a token's answers.
#pragma once

#include <stdexcept>
#include <string>

#include "gpu/stress/stress_codec.cuh"

namespace ferry::stress {

__device__ inline void report(Verdict* verdict, const Round& r, const Found& found, int place) {
  if (found.wrong == Wrong::none) return;
  if (atomicAdd(&verdict->mismatches, 1ull) != 0) return;
  verdict->wrong = found.wrong;
  verdict->round = r.number;
  verdict->place = place;
  verdict->column = found.column;
  verdict->expected = found.expected;
  verdict->got = found.got;
}

// The weighted sum of what the experts of one rank answer for a token of `source`, k ascending.
__device__ inline float add_products(const Setting& s, const Round& r, const int* ids, int source, int token, int rank,
                                     unsigned column) {
  float sum = 0;
  for (int k = 0; k < s.top_k; ++k) {
    if (ids[k] < 0 || s.owner[ids[k]] != rank) continue;
    const float value = float_of_bf16(value_at(result_key(s, r, source, token, k), column));
    sum = __fadd_rn(sum, __fmul_rn(weight_at(s, r, source, token, k), value));
  }
  return sum;
}

inline void require_launched() {
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) throw std::runtime_error(std::string("launch: ") + cudaGetErrorString(status));
}

}  // namespace ferry::stress
