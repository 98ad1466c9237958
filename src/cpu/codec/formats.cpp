// The list of the library's formats behind function pointers, and their look-up by name.
#include "shared/codec/formats.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "ferry/error.h"

namespace ferry {

std::span<const AnyFormat> all_formats() {
  static constexpr std::array kFormats{any_format<Bf16>(),  any_format<Fp8Block128>(), any_format<Fp8Block128Ue8m0>(),
                                       any_format<Mxfp8>(), any_format<Mxfp6E2m3>(),   any_format<Mxfp6E3m2>(),
                                       any_format<Mxfp4>(), any_format<Nvfp4>()};
  return kFormats;
}

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
