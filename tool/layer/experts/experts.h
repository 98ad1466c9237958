// The experts of the layer: down · swiglu(gate_up · x), weights rounded to bf16 when they are used, matrix products in
// float32 through a BLAS, the intermediate and the result rounded to bf16.
#pragma once

#include <cstdint>

#include "tool/io/bfloat16.h"
#include "tool/io/memory.h"
#include "tool/layer/base/layer_plan.h"

namespace ferry::app {

// Products add up in steps of this many columns: a float32 sum of n products is then off by at most
// step_roundings(n) roundings, in whatever order the BLAS adds (check/layer_check.cpp relies on it).
inline constexpr int kProductStep = 256;
constexpr int step_roundings(int n) {
  return (n < kProductStep ? n : kProductStep) + (n + kProductStep - 1) / kProductStep + 1;
}

// Works for one thread: the scratch memory of its matrix products.
class ExpertRunner {
 public:
  ExpertRunner(int hidden, int largest_inter);

  // out[i] = expert(rows[i]) for `count` rows of `hidden` values.
  void run(const ExpertWeights& weights, const float* rows, std::int64_t count, Bf16* out);

  // Memory that a runner takes.
  static std::uint64_t bytes(int hidden, int largest_inter);
  static constexpr std::int64_t kMostRows = 512;  // in one product; more are taken in turn

 private:
  void run_some(const ExpertWeights& weights, const float* rows, int count, Bf16* out);

  int hidden_;
  Pages weights_;       // bf16 values of one matrix, as float32
  Pages gate_up_;       // [kMostRows, 2 * padded inter]
  Pages intermediate_;  // bf16 bits, then as float32
  Pages result_;        // [kMostRows, hidden]
};

// How many threads one matrix product may use, from now on and in the whole process.
void set_product_threads(int threads);

// c[m, n] (+)= a[m, k] · b[n, k]^T with leading dimensions; float64, for the oracle.
void product(const double* a, const double* b, double* c, int m, int n, int k);

}  // namespace ferry::app
