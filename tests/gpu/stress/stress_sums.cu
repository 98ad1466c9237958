// The sums of a combine, computed again: what each rank, or each expert, sends home goes through the format of results.
#include "gpu/stress/stress_verdict.cuh"

namespace ferry::stress {
namespace {

constexpr int kThreads = 128;
constexpr int kMostResults = 32;  // of a token: ranks, or k
constexpr int kOfLane = 4;        // columns of a block that a lane has: 32 lanes apart

struct Token {
  int index;
  const int* ids;  // [K]
};

// A token has a result for each rank that it names, or with `exact` for each k.
__device__ int results_of(const Setting& s) { return s.exact ? s.top_k : s.ranks; }
__device__ bool has_result(const Setting& s, const Token& token, int result) {
  if (s.exact) return token.ids[result] >= 0;
  for (int k = 0; k < s.top_k; ++k)
    if (token.ids[k] >= 0 && s.owner[token.ids[k]] == result) return true;
  return false;
}
// What the sender has before it encodes. Rows by_source are sums that were rounded to bf16 already.
__device__ float sent(const Setting& s, const Round& r, const Token& token, int result, int column) {
  const auto at = static_cast<unsigned>(column);
  if (s.exact) return float_of_bf16(value_at(result_key(s, r, s.rank, token.index, result), at));
  const float sum = add_products(s, r, token.ids, s.rank, token.index, result, at);
  return r.order[result] == RowOrder::by_source ? float_of_bf16(bf16_of_float(sum)) : sum;
}

__device__ float float_of_e2m1(unsigned code) {
  return __half2float(__half(__nv_cvt_fp4_to_halfraw(static_cast<__nv_fp4_storage_t>(code), __NV_E2M1)));
}
// `code` is of scale.multiplier times a value.
__device__ float decoded(Format format, float input_scale, const BlockScale& scale, float scaled) {
  switch (format) {
    case Format::nvfp4:
      return __fdiv_rn(__fmul_rn(float_of_e2m1(e2m1_of(scaled)), float_of_e4m3(scale.stored)), input_scale);
    case Format::mxfp8:
      return __fmul_rn(float_of_e4m3(e4m3_of(scaled)), ldexpf(1.0f, static_cast<int>(scale.stored) - 127));
    default:
      return __fmul_rn(float_of_e4m3(e4m3_of(scaled)), __uint_as_float(scale.stored));
  }
}
// A block of columns by a warp: encoded and decoded. `largest`: of the whole result, for nvfp4.
__device__ void pass_through(Format format, float largest, float (&values)[kOfLane]) {
  if (format == Format::f32) return;
  if (scale_width(format) == 0) {
    for (float& value : values)
      value = format == Format::f16 ? __half2float(__float2half_rn(value)) : float_of_bf16(bf16_of_float(value));
    return;
  }
  float amax = 0;
  for (const float value : values) amax = fmaxf(amax, fabsf(value));
  const float inverse = largest == 0 ? 1.0f : __fdiv_rn(1.0f, __fdiv_rn(2688.0f, largest));
  const float input_scale = __fdiv_rn(1.0f, inverse);
  const BlockScale scale = scale_of(format, input_scale, largest_in_warp(amax));
  for (float& value : values) value = decoded(format, input_scale, scale, __fmul_rn(value, scale.multiplier));
}

// The largest magnitude of each result of a token. All threads of the block call it.
__device__ void find_largest(const Setting& s, const Round& r, const Token& token, unsigned* largest) {
  if (threadIdx.x < kMostResults) largest[threadIdx.x] = 0;
  __syncthreads();
  for (int result = 0; s.result == Format::nvfp4 && result < results_of(s); ++result)
    for (int column = static_cast<int>(threadIdx.x); column < s.hidden; column += kThreads)
      if (has_result(s, token, result))
        atomicMax(&largest[result], __float_as_uint(fabsf(sent(s, r, token, result, column))));
  __syncthreads();
}

// A block of columns by a warp: results in ascending order, by_rank as they are, exact times the weight of k.
__device__ void sum_block(const Setting& s, const Round& r, const Token& token, const unsigned* largest, int first,
                          int width, float (&sums)[kOfLane]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int result = 0; result < results_of(s); ++result) {
    if (!has_result(s, token, result)) continue;
    float values[kOfLane];
    for (int i = 0; i < kOfLane; ++i) {
      const int column = i * 32 + lane;
      values[i] = column < width && first + column < s.hidden ? sent(s, r, token, result, first + column) : 0.0f;
    }
    pass_through(s.result, __uint_as_float(largest[result]), values);
    const float weight = s.exact ? weight_at(s, r, s.rank, token.index, result) : 1.0f;
    for (int i = 0; i < kOfLane; ++i) sums[i] = __fadd_rn(sums[i], __fmul_rn(weight, values[i]));
  }
}

// A block for each token.
__global__ void sums_kernel(const __grid_constant__ Setting s, const __grid_constant__ Round r, Inputs in,
                            const void* sums, bool wide, Verdict* verdict) {
  __shared__ unsigned largest[kMostResults];
  const int index = static_cast<int>(blockIdx.x);
  if (index >= r.tokens[s.rank]) return;
  const Token token{index, in.all_ids + (s.rank * s.max_tokens + index) * s.top_k};
  find_largest(s, r, token, largest);
  const int width = scale_width(s.result) == 0 ? 128 : scale_width(s.result);
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  Found found;
  for (int first = warp * width; first < s.hidden; first += kThreads / 32 * width) {
    float expected[kOfLane] = {};
    sum_block(s, r, token, largest, first, width, expected);
    for (int i = 0; i < kOfLane; ++i) {
      const int column = first + i * 32 + lane;
      if (i * 32 + lane >= width || column >= s.hidden) continue;
      if (s.shared)
        expected[i] =
            __fadd_rn(expected[i],
                      float_of_bf16(value_at(result_key(s, r, s.rank, index, s.top_k), static_cast<unsigned>(column))));
      const long long at = static_cast<long long>(index) * s.hidden + column;
      if (wide)
        found.compare(Wrong::sum, column, __float_as_uint(expected[i]), static_cast<const unsigned*>(sums)[at]);
      else
        found.compare(Wrong::sum, column, bf16_of_float(expected[i]), static_cast<const std::uint16_t*>(sums)[at]);
    }
  }
  report(verdict, r, found, index);
  if (threadIdx.x == 0) atomicAdd(&verdict->sums_checked, 1ull);
}

}  // namespace

void check_sums(const Setting& setting, const Round& round, const Inputs& inputs, const void* sums, bool wide,
                Verdict* verdict, cudaStream_t stream) {
  sums_kernel<<<static_cast<unsigned>(setting.max_tokens), kThreads, 0, stream>>>(setting, round, inputs, sums, wide,
                                                                                  verdict);
  require_launched();
}

}  // namespace ferry::stress
