// Matrix products through CBLAS. Only this file includes it.
#include "tool/layer/experts/experts.h"

#include <cblas.h>

#include <algorithm>

#include "ferry/rows/activation.h"

namespace ferry::app {
namespace {

constexpr int kColumns = 32;  // swiglu takes multiples of this; padding columns are 0 and stay 0

int padded(int inter) { return (inter + kColumns - 1) / kColumns * kColumns; }

std::size_t floats(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns) * sizeof(float);
}

// out[count, n] = in[count, k] · matrix[n, k]^T, in steps of kProductStep columns.
void stepped_product(const float* in, int in_stride, const float* matrix, float* out, int out_stride, int count, int n,
                     int k) {
  for (int begin = 0; begin < k; begin += kProductStep) {
    const int step = std::min(kProductStep, k - begin);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, count, n, step, 1.0f, in + begin, in_stride, matrix + begin, k,
                begin == 0 ? 0.0f : 1.0f, out, out_stride);
  }
}

}  // namespace

ExpertRunner::ExpertRunner(int hidden, int largest_inter)
    : hidden_(hidden),
      weights_(floats(2 * largest_inter, hidden)),
      gate_up_(floats(kMostRows, 2 * padded(largest_inter))),
      intermediate_(floats(kMostRows, padded(largest_inter)) * 3 / 2),
      result_(floats(kMostRows, hidden)) {}

std::uint64_t ExpertRunner::bytes(int hidden, int largest_inter) {
  return floats(2 * largest_inter, hidden) + floats(kMostRows, 2 * padded(largest_inter)) +
         floats(kMostRows, padded(largest_inter)) * 3 / 2 + floats(kMostRows, hidden);
}

void ExpertRunner::run(const ExpertWeights& weights, const float* rows, std::int64_t count, Bf16* out) {
  for (std::int64_t begin = 0; begin < count; begin += kMostRows)
    run_some(weights, rows + begin * hidden_, static_cast<int>(std::min(kMostRows, count - begin)),
             out + begin * hidden_);
}

void ExpertRunner::run_some(const ExpertWeights& weights, const float* rows, int count, Bf16* out) {
  const int inter = weights.inter;
  const int columns = padded(inter);
  const std::size_t half = static_cast<std::size_t>(inter) * static_cast<std::size_t>(hidden_);
  float* const matrix = weights_.as<float>();
  float* const gate_up = gate_up_.as<float>();
  if (columns != inter)
    std::fill_n(gate_up, static_cast<std::size_t>(count) * 2 * static_cast<std::size_t>(columns), 0.0f);
  round_to_bf16(weights.gate_up, matrix, 2 * half);
  stepped_product(rows, hidden_, matrix, gate_up, 2 * columns, count, inter, hidden_);
  stepped_product(rows, hidden_, matrix + half, gate_up + columns, 2 * columns, count, inter, hidden_);

  float* const activated = intermediate_.as<float>();
  Bf16* const bits =
      reinterpret_cast<Bf16*>(activated + static_cast<std::size_t>(kMostRows) * static_cast<std::size_t>(columns));
  const std::uint32_t offsets[2] = {0, static_cast<std::uint32_t>(count)};
  SwigluInput in;
  in.rows = ConstTensor(gate_up, DType::f32, {count, 2 * columns});
  in.row_offsets = ConstTensor(offsets, DType::u32, {2});
  SwigluOutput activation;
  activation.payload = Tensor(bits, DType::bf16, {count, columns});
  swiglu(format_named("bf16"), in, activation);
  from_bf16(bits, activated, static_cast<std::size_t>(count) * static_cast<std::size_t>(columns));

  round_to_bf16(weights.down, matrix, half);
  stepped_product(activated, columns, matrix, result_.as<float>(), hidden_, count, hidden_, inter);
  to_bf16(result_.as<float>(), out, static_cast<std::size_t>(count) * static_cast<std::size_t>(hidden_));
}

void set_product_threads(int threads) { openblas_set_num_threads(threads); }

void product(const double* a, const double* b, double* c, int m, int n, int k) {
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1.0, a, k, b, k, 0.0, c, n);
}

}  // namespace ferry::app
