// The list of the library's formats behind function pointers, and their look-up by name.
#include "cpu/formats/formats.h"

#include <fmt/core.h>

#include <array>
#include <string>

#include "ferry/detail/formats/format_list.h"
#include "ferry/error.h"

namespace ferry {
namespace cpu {
namespace {

template <class F>
struct Encode {
  static int run(InputRow row, int hidden, float input_scale, std::byte* payload, std::byte* scales) {
    return F{}.encode(SerialGroup{}, row, hidden, input_scale, payload, scales);
  }
  using Signature = int(InputRow, int, float, std::byte*, std::byte*);
};

template <class F>
struct Decode {
  static void run(const std::byte* payload, const std::byte* scales, int hidden, float input_scale, float* out) {
    F{}.decode(SerialGroup{}, payload, scales, hidden, input_scale, out);
  }
  using Signature = void(const std::byte*, const std::byte*, int, float, float*);
};

template <class F, SimdLevel kLevel>
constexpr FormatTable kTable{F::name(),
                             F::block(),
                             F::scale_bytes(),
                             F::scale_layout(),
                             F::alignment(),
                             &F::payload_bytes,
                             AtLevel<Encode<F>, typename Encode<F>::Signature>::at(kLevel),
                             AtLevel<Decode<F>, typename Decode<F>::Signature>::at(kLevel)};

template <SimdLevel kLevel, class... Formats>
constexpr std::array<AnyFormat, sizeof...(Formats)> kFormatsOf{AnyFormat(kTable<Formats, kLevel>)...};

template <SimdLevel kLevel>
std::span<const AnyFormat> list() {
  return kFormatsOf<kLevel, Bf16, Fp8Block128, Fp8Block128Ue8m0, Mxfp8, Mxfp6E2m3, Mxfp6E3m2, Mxfp4, Nvfp4>;
}

}  // namespace

std::span<const AnyFormat> formats_at(SimdLevel level) {
  switch (level) {
    case SimdLevel::avx512:
      return list<SimdLevel::avx512>();
    case SimdLevel::avx2:
      return list<SimdLevel::avx2>();
    case SimdLevel::baseline:
      break;
  }
  return list<SimdLevel::baseline>();
}

}  // namespace cpu

std::span<const AnyFormat> all_formats() { return cpu::formats_at(cpu::best_simd_level()); }

AnyFormat format_named(std::string_view name) {
  std::string known;
  for (const AnyFormat& format : all_formats()) {
    if (name == format.name()) return format;
    known += known.empty() ? "" : ", ";
    known += format.name();
  }
  throw Error(ErrorKind::invalid_argument, fmt::format("format: '{}' is not a format; known are {}", name, known));
}

}  // namespace ferry
