// Kernels that make nvcc build the shared codecs and scale layouts for a warp: proof that the text which
// the CPU tests run is text that a GPU takes. Each encodes, decodes or places one row per warp.
#include <cstddef>

#include "ferry/detail/cuda/activation/warp_group.cuh"
#include "ferry/detail/formats/format_list.h"
#include "ferry/detail/layout/scale_layout.h"

namespace ferry::cuda {

struct RowsParams {
  const std::byte* input;
  DType dtype;
  int rows;
  int hidden;
  float input_scale;
  std::byte* payload;  // rows of payload_bytes, each 16-byte aligned
  std::byte* scales;   // rows of scales, one after the other
  ScaleTensor tensor;
  std::uint32_t* non_finite;  // one word per warp
};

namespace {

__device__ int row_of_warp() { return static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / WarpGroup::kWidth); }

template <TokenFormat F>
__device__ std::byte* scales_of(const RowsParams& params, int row) {
  return params.scales + static_cast<std::size_t>(row) * scales_per_row(F{}, params.hidden) * F{}.scale_bytes();
}

template <TokenFormat F>
__device__ std::byte* payload_of(const RowsParams& params, int row) {
  return params.payload + static_cast<std::size_t>(row) * F{}.payload_bytes(params.hidden);
}

template <TokenFormat F>
__global__ void encode_rows(const __grid_constant__ RowsParams params) {
  const WarpGroup warp;
  const int row = row_of_warp();
  if (row >= params.rows) return;
  const std::size_t element = params.dtype == DType::f32 ? 4 : 2;
  const InputRow input{params.input + static_cast<std::size_t>(row) * params.hidden * element, params.dtype};
  std::byte* const scales = scales_of<F>(params, row);
  const int found = F{}.encode(warp, input, params.hidden, params.input_scale, payload_of<F>(params, row), scales);
  const std::uint32_t any = warp.max_over<WarpGroup::kWidth>(found > 0 ? 1u : 0u);
  if (warp.thread() == 0) params.non_finite[row] = any;
  warp.sync();
  store_scales(warp, params.tensor, scales, ScaleRow{row, 0, 0});
}

template <TokenFormat F>
__global__ void decode_rows(const __grid_constant__ RowsParams params, float* out) {
  const int row = row_of_warp();
  if (row >= params.rows) return;
  F{}.decode(WarpGroup{}, payload_of<F>(params, row), scales_of<F>(params, row), params.hidden, params.input_scale,
             out + static_cast<std::size_t>(row) * params.hidden);
}

__global__ void zero_padding(ScaleTensor tensor, int first_row, int end_row) {
  zero_scale_tail(WarpGroup{}, tensor, first_row, end_row, 0);
}

template <TokenFormat F>
void launch_all(const RowsParams& params, float* out, cudaStream_t stream) {
  constexpr int kWarps = 4;
  const auto blocks = static_cast<unsigned>((params.rows + kWarps - 1) / kWarps);
  encode_rows<F><<<blocks, kWarps * WarpGroup::kWidth, 0, stream>>>(params);
  decode_rows<F><<<blocks, kWarps * WarpGroup::kWidth, 0, stream>>>(params, out);
}

}  // namespace

// Makes every kernel above for every format of the library.
void launch_codec_kernels(const RowsParams& params, float* out, cudaStream_t stream) {
  Formats::for_each([&]<class F>(std::type_identity<F>) { launch_all<F>(params, out, stream); });
  zero_padding<<<1, WarpGroup::kWidth, 0, stream>>>(params.tensor, 0, params.rows);
}

}  // namespace ferry::cuda
