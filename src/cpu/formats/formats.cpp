// The library's formats behind function pointers, for each instruction set, and their look-up by name.
#include "cpu/formats/formats.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "base/nearest.h"
#include "cpu/formats/bytes_format.h"
#include "ferry/detail/formats/float_formats.h"
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
                             AtLevel<Decode<F>, typename Decode<F>::Signature>::at(kLevel),
                             F::takes_input_scale()};

template <SimdLevel kLevel>
constexpr std::array<AnyFormat, Formats::kCount> kFormatsAt = Formats::table([]<class F>(std::type_identity<F>) {
  return AnyFormat(kTable<F, kLevel>);
});

}  // namespace

const std::array<AnyFormat, Formats::kCount>& formats_at(SimdLevel level) {
  switch (level) {
    case SimdLevel::avx512:
      return kFormatsAt<SimdLevel::avx512>;
    case SimdLevel::avx2:
      return kFormatsAt<SimdLevel::avx2>;
    case SimdLevel::baseline:
      break;
  }
  return kFormatsAt<SimdLevel::baseline>;
}

}  // namespace cpu

std::span<const AnyFormat> all_formats() { return cpu::formats_at(cpu::best_simd_level()); }

AnyFormat format_named(std::string_view name) {
  const AnyFormat* const found = find_format(cpu::formats_at(cpu::best_simd_level()), name);
  if (found != nullptr) return *found;
  if (const std::optional<AnyFormat> bytes = bytes_format_named(name)) return *bytes;
  const std::vector<std::string> names(std::begin(kFormatNames), std::end(kFormatNames));
  throw Error(ErrorKind::invalid_argument, fmt::format("format: '{}' is not a format; known are {}{}", name,
                                                       fmt::join(names, ", "), did_you_mean(std::string(name), names)));
}

namespace {

const std::vector<AnyFormat>& formats_of_results() {
  static const std::vector<AnyFormat> all = [] {
    std::vector<AnyFormat> formats;
    ResultFormats::for_each([&]<class F>(std::type_identity<F>) {
      if constexpr (Formats::kHas<F>)  // which have encoders for the instruction set of this machine
        formats.push_back(format_named(F::name()));
      else
        formats.push_back(any_format<F>());
    });
    return formats;
  }();
  return all;
}

}  // namespace

std::span<const AnyFormat> result_formats() { return formats_of_results(); }

AnyFormat result_format_named(std::string_view name) {
  std::vector<std::string> names;
  for (const AnyFormat& format : formats_of_results()) {
    if (name == format.name()) return format;
    names.emplace_back(format.name());
  }
  throw Error(ErrorKind::invalid_argument, fmt::format("result format: '{}' is not a format; known are {}{}", name,
                                                       fmt::join(names, ", "), did_you_mean(std::string(name), names)));
}

}  // namespace ferry
