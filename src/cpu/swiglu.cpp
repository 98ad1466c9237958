// SwiGLU on the CPU: a row is activated in float32, then goes through the format's encoder.
#include <cstring>
#include <vector>

#include "cpu/formats/simd.h"
#include "ferry/detail/activation/swiglu_check.h"
#include "ferry/detail/activation/swiglu_math.h"

namespace ferry {
namespace activation {
namespace {

// A row of 2 * inter inputs to inter float32 values. Processors make different NaNs; rows hold one.
template <class Input, bool kInterleaved, bool kClamped>
struct ActivateRow {
  static void run(const std::byte* row, int inter, float alpha, float limit, float* out) {
    const SwigluSource<Input, kInterleaved, kClamped> source{reinterpret_cast<const typename Input::Stored*>(row),
                                                             inter, alpha, limit};
    for (int column = 0; column < inter; column += kStrip) {
      std::uint32_t bits[kStrip];
      source.template load<kStrip>(column, kStrip, bits);
      for (int i = 0; i < kStrip; ++i) out[column + i] = float_of(codec::with_one_nan(bits[i]));
    }
  }
  static constexpr int kStrip = 32;  // inter is a multiple of it
};

using RowFunction = void (*)(const std::byte* row, int inter, float alpha, float limit, float* out);

template <class Input, bool kInterleaved, bool kClamped>
RowFunction best() {
  using Leveled =
      cpu::AtLevel<ActivateRow<Input, kInterleaved, kClamped>, void(const std::byte*, int, float, float, float*)>;
  return Leveled::at(cpu::best_simd_level());
}

template <class Input>
RowFunction choose(const SwigluOptions& options) {
  if (options.interleaved) return options.clamped ? best<Input, true, true>() : best<Input, true, false>();
  return options.clamped ? best<Input, false, true>() : best<Input, false, false>();
}

RowFunction choose(DType dtype, const SwigluOptions& options) {
  if (dtype == DType::bf16) return choose<codec::Bf16Input>(options);
  if (dtype == DType::f16) return choose<codec::F16Input>(options);
  return choose<codec::F32Input>(options);
}

// One row's encoded bytes on their way out: encoders may ask for more alignment than a row of the tensor has.
struct alignas(16) Chunk {
  std::byte bytes[16];
};
std::vector<Chunk> chunks_for(std::size_t bytes) {
  return std::vector<Chunk>((bytes + sizeof(Chunk) - 1) / sizeof(Chunk));
}

}  // namespace
}  // namespace activation

void swiglu(const AnyFormat& format, const SwigluInput& in, const SwigluOutput& out, const SwigluOptions& options) {
  using namespace activation;
  const SwigluWork work = check_swiglu(format, in, out, options);
  const RowFunction activate = choose(work.dtype, options);
  const std::size_t input_row_bytes = 2 * static_cast<std::size_t>(work.inter) * size_of(work.dtype);
  std::vector<float> values(static_cast<std::size_t>(work.inter));
  std::vector<Chunk> payload = chunks_for(work.payload_row_bytes);
  std::vector<Chunk> scales = chunks_for(static_cast<std::size_t>(work.scales.scales_per_row) *
                                         static_cast<std::size_t>(work.scales.scale_bytes));
  auto* const payload_bytes = reinterpret_cast<std::byte*>(payload.data());
  auto* const scale_bytes = reinterpret_cast<std::byte*>(scales.data());

  for (int group = 0; group < work.groups; ++group) {
    const std::uint32_t first = work.row_offsets[group];
    const std::uint32_t end = work.row_offsets[group + 1];
    const std::uint32_t scales_offset = work.scales_offsets == nullptr ? 0 : work.scales_offsets[group];
    const float input_scale = work.input_scales == nullptr ? 1.0f : work.input_scales[group];
    for (std::size_t row = first; row < end; ++row) {
      activate(work.rows + row * input_row_bytes, work.inter, options.alpha, options.limit, values.data());
      format.encode(SerialGroup{}, InputRow{values.data(), DType::f32}, work.inter, input_scale, payload_bytes,
                    scale_bytes);
      std::memcpy(work.payload + row * work.payload_row_bytes, payload_bytes, work.payload_row_bytes);
      store_scales(SerialGroup{}, work.scales, scale_bytes,
                   ScaleRow{static_cast<std::int64_t>(row), first, scales_offset});
    }
    zero_scale_tail(SerialGroup{}, work.scales, first, end, scales_offset);
  }
}

}  // namespace ferry
