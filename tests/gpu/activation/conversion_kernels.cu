#include "conversion_kernels.h"

#include <cstring>
#include <stdexcept>
#include <vector>

#include "device_copy.h"
#include "ferry/detail/cuda/activation/warp_group.cuh"
#include "ferry/detail/formats/format_list.h"

namespace ferry::test {
namespace {

using namespace codec;

__device__ void note(Difference* found, std::uint32_t value, float multiplier) {
  atomicAdd(reinterpret_cast<unsigned long long*>(&found->count), 1ull);
  found->value = value;
  found->multiplier = multiplier;
}

// One thread: kColumns bf16 values and one multiplier.
template <class Element, int kColumns>
__global__ void compare_codes(Difference* found) {
  constexpr int kWords = kWordsAtOnce<Element, kColumns>;
  const float multiplier = float_of((blockIdx.y + 1) << 23);
  const std::uint32_t first = (blockIdx.x * blockDim.x + threadIdx.x) * kColumns;
  std::uint32_t bits[kColumns];
  std::uint32_t amax = 0;
  for (int i = 0; i < kColumns; ++i) {
    const std::uint32_t value = (first + static_cast<std::uint32_t>(i)) << 16;
    const std::uint32_t magnitude = value & kMagnitudeMask;
    const bool in = magnitude < kInfinityBits &&
                    (Element::kBits == 8 || bits_of(multiply_rounded(float_of(magnitude), multiplier)) <
                                                Element::kMaxBits + (1u << (22 - Element::kMantissaBits)));
    bits[i] = in ? value : value & ~kMagnitudeMask;
    amax = larger(amax, bits[i] & kMagnitudeMask);
  }
  std::uint32_t words[kWords + 1] = {};
  pack_columns<Element, true>(bits, amax, multiplier, true, reinterpret_cast<std::uint32_t(&)[kWords]>(words));
  for (int i = 0; i < kColumns; ++i) {
    const int at = i * Element::kBits;
    const std::uint64_t pair = std::uint64_t{words[at / 32 + 1]} << 32 | words[at / 32];
    const auto code = static_cast<std::uint32_t>(pair >> (at % 32)) & ((1u << Element::kBits) - 1u);
    if (code != Element::encode(bits[i], multiplier)) note(found, bits[i], multiplier);
  }
}

template <class Element, int kColumns = 16>
void run_compare(Difference* found) {
  compare_codes<Element, kColumns><<<dim3(65536 / kColumns / 256, 254), 256>>>(found);
}

__global__ void compare_divisions(Division division, std::uint32_t first_field, Difference* found) {
  const std::uint32_t bits = ((first_field + blockIdx.y) << 23) | (blockIdx.x * blockDim.x + threadIdx.x);
  const float x = float_of(bits);
  float got = 0;
  float want = 0;
  if (division == Division::reciprocal) {
    got = reciprocal_rounded(x);
    want = __fdiv_rn(1.0f, x);
  } else {
    const BlockScale<std::uint32_t> scale = FloatScale::choose(bits, 1.0f);
    const float amax = float_of(larger(bits, kSmallestAmax));
    const bool stored = division == Division::amax_by_448;
    got = stored ? float_of(scale.stored) : scale.multiplier;
    want = stored ? __fdiv_rn(amax, 448.0f) : __fdiv_rn(448.0f, amax);
  }
  if (bits_of(got) != bits_of(want)) note(found, bits, got);
}

template <class Run>
Difference counted(const Run& run) {
  Difference found;
  const DeviceCopy on_device(&found, sizeof found);
  run(static_cast<Difference*>(on_device.data()));
  cuda_ok(cudaGetLastError());
  cuda_ok(cudaDeviceSynchronize());
  on_device.read(&found);
  return found;
}

struct Rows {
  const std::byte* input;
  DType dtype;
  int num_rows;
  int hidden;
  float input_scale;
  std::byte* payload;
  std::byte* scales;
  std::uint32_t* non_finite;
};

template <class F>
__global__ void encode_rows(const __grid_constant__ Rows rows) {
  const cuda::WarpGroup warp;
  const auto row = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / cuda::WarpGroup::kWidth);
  if (row >= rows.num_rows) return;
  const std::size_t bytes = static_cast<std::size_t>(rows.hidden) * (rows.dtype == DType::f32 ? 4 : 2);
  const std::size_t scale_bytes = static_cast<std::size_t>(scales_per_row(F{}, rows.hidden)) * F::scale_bytes();
  const int found = F{}.encode(warp, InputRow{rows.input + row * bytes, rows.dtype}, rows.hidden, rows.input_scale,
                               rows.payload + row * F::payload_bytes(rows.hidden), rows.scales + row * scale_bytes);
  if (found != 0) atomicAdd(rows.non_finite + row, static_cast<std::uint32_t>(found));
}

template <class F>
bool launch_encode(const char* format, const Rows& rows) {
  if (std::strcmp(format, F::name()) != 0) return false;
  encode_rows<F><<<static_cast<unsigned>((rows.num_rows + 7) / 8), 256>>>(rows);
  return true;
}

template <class F>
__global__ void decode_rows(const __grid_constant__ EncodedRows rows, float* values) {
  const cuda::WarpGroup warp;
  const auto row = static_cast<std::size_t>((blockIdx.x * blockDim.x + threadIdx.x) / cuda::WarpGroup::kWidth);
  if (row >= static_cast<std::size_t>(rows.num_rows)) return;
  F{}.decode(warp, rows.payload + row * rows.payload_pitch, rows.scales + row * rows.scale_pitch, rows.hidden,
             rows.input_scale, values + row * rows.value_pitch);
}

template <class F>
bool launch_decode(const char* format, const EncodedRows& rows, float* values) {
  if (std::strcmp(format, F::name()) != 0) return false;
  decode_rows<F><<<static_cast<unsigned>((rows.num_rows + 7) / 8), 256>>>(rows, values);
  return true;
}

template <class... Formats>
struct OfFormats {
  static bool encode(const char* format, const Rows& rows) { return (launch_encode<Formats>(format, rows) || ...); }
  static bool decode(const char* format, const EncodedRows& rows, float* values) {
    return (launch_decode<Formats>(format, rows, values) || ...);
  }
};
using AllFormats = Formats::Into<OfFormats>;

void finish_launch(bool launched) {
  if (!launched) throw std::runtime_error("no such format");
  cuda_ok(cudaGetLastError());
  cuda_ok(cudaDeviceSynchronize());
}

}  // namespace

Difference count_code_differences(const char* element) {
  return counted([&](Difference* found) {
    if (std::strcmp(element, "e4m3") == 0) run_compare<E4m3>(found);
    if (std::strcmp(element, "e4m3 by 8") == 0) run_compare<E4m3, 8>(found);
    if (std::strcmp(element, "e2m3") == 0) run_compare<E2m3>(found);
    if (std::strcmp(element, "e3m2") == 0) run_compare<E3m2>(found);
    if (std::strcmp(element, "e2m1") == 0) run_compare<E2m1>(found);
  });
}

Difference count_division_differences(Division division) {
  // Reciprocals of 2^-100 to 2^100; amax from 2^-14, below the smallest, to the largest float32.
  const bool reciprocal = division == Division::reciprocal;
  const std::uint32_t first = reciprocal ? 127 - 100 : 127 - 14;
  const std::uint32_t fields = (reciprocal ? 127 + 100 : 255) - first;
  return counted(
      [&](Difference* found) { compare_divisions<<<dim3((1u << 23) / 256, fields), 256>>>(division, first, found); });
}

void encode_on_device(const char* format, const void* rows, DType dtype, int num_rows, int hidden, float input_scale,
                      std::byte* payload, std::byte* scales, std::uint32_t* non_finite) {
  const auto count = static_cast<std::size_t>(num_rows);
  const std::size_t row_bytes = static_cast<std::size_t>(hidden) * size_of(dtype);
  // Room for every format: at most two bytes of codes a column, and four of scales for 16 of them.
  const DeviceCopy input(rows, count * row_bytes);
  const std::vector<std::byte> zeros(count * static_cast<std::size_t>(hidden) * 2);
  const DeviceCopy codes(zeros.data(), zeros.size());
  const DeviceCopy scale_rows(zeros.data(), zeros.size() / 8);
  const DeviceCopy found(zeros.data(), count * 4);
  const Rows on_device{static_cast<const std::byte*>(input.data()),
                       dtype,
                       num_rows,
                       hidden,
                       input_scale,
                       static_cast<std::byte*>(codes.data()),
                       static_cast<std::byte*>(scale_rows.data()),
                       static_cast<std::uint32_t*>(found.data())};
  finish_launch(AllFormats::encode(format, on_device));
  codes.read(payload);
  scale_rows.read(scales);
  found.read(non_finite);
}

void decode_on_device(const char* format, const EncodedRows& rows, float* values) {
  const auto count = static_cast<std::size_t>(rows.num_rows);
  const DeviceCopy payload(rows.payload, count * rows.payload_pitch);
  const DeviceCopy scales(rows.scales, count * rows.scale_pitch);
  const DeviceCopy decoded(values, count * rows.value_pitch * sizeof(float));
  EncodedRows on_device = rows;
  on_device.payload = static_cast<const std::byte*>(payload.data());
  on_device.scales = static_cast<const std::byte*>(scales.data());
  finish_launch(AllFormats::decode(format, on_device, static_cast<float*>(decoded.data())));
  decoded.read(values);
}

}  // namespace ferry::test
