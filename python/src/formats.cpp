// Token formats: their numbers, and encoding and decoding of whole arrays.
#include <ferry/rows/host_rows.h>
#include <ferry/token_format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "python/src/arrays/arrays.h"
#include "python/src/base/parts.h"
#include "python/src/base/values.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ferry::python {
namespace {

struct PyFormat {
  AnyFormat format;
};

// A row's codes and scales where a format wants them: aligned.
struct alignas(16) Sixteen {
  std::byte bytes[16];
};
class RowBuffer {
 public:
  explicit RowBuffer(std::size_t bytes) : memory_(bytes / sizeof(Sixteen) + 1) {}
  std::byte* data() { return memory_.data()->bytes; }

 private:
  std::vector<Sixteen> memory_;
};

[[noreturn]] void refuse(const std::string& what, const ConstTensor& given, const std::string& must_be) {
  throw Error(ErrorKind::invalid_argument, what + " is " + to_string(given) + "; it must be " + must_be);
}

void require(bool fits, const std::string& what, const ConstTensor& given, const std::string& must_be) {
  if (!fits || !given.is_contiguous() || given.device.kind == Device::Kind::cuda)
    refuse(what, given, must_be + ", contiguous, in host memory");
}

float input_scale_of(nb::handle given) {
  const auto input_scale = value_as<float>("input_scale", given, kNumber);
  if (!std::isfinite(input_scale) || input_scale <= 0)
    throw Error(ErrorKind::invalid_argument,
                "input_scale is " + std::to_string(input_scale) + "; it must be finite and above 0");
  return input_scale;
}

constexpr int kMostColumns = 1 << 24;
bool may_be_hidden(std::int64_t columns) {
  return columns >= kHiddenMultiple && columns % kHiddenMultiple == 0 && columns <= kMostColumns;
}
int hidden_of(nb::handle given) {
  const auto hidden = whole_as<int>("hidden", given);
  if (!may_be_hidden(hidden))
    throw Error(ErrorKind::invalid_argument,
                "hidden is " + std::to_string(hidden) + "; it must be a positive multiple of " +
                    std::to_string(kHiddenMultiple) + ", at most " + std::to_string(kMostColumns));
  return hidden;
}

// What a row of codes and a row of scales take.
struct RowBytes {
  std::int64_t rows, payload, scales;
};

RowBytes checked_rows(const AnyFormat& format, const ConstTensor& payload, const ConstTensor& scales, std::int64_t rows,
                      int hidden) {
  const auto payload_bytes = static_cast<std::int64_t>(format.payload_bytes(hidden));
  const int columns = scales_per_row(format, hidden);
  const std::string n = std::to_string(rows);
  require(
      payload.dtype == DType::u8 && payload.rank == 2 && payload.shape[0] == rows && payload.shape[1] == payload_bytes,
      "payload", payload, "u8 [" + n + ", " + std::to_string(payload_bytes) + "]");
  if (columns == 0 && scales) refuse("scales", scales, std::string("left out: ") + format.name() + " has no scales");
  if (columns != 0) {
    const DType dtype = format.scale_bytes() == 4 ? DType::f32 : DType::u8;
    require(scales.dtype == dtype && scales.rank == 2 && scales.shape[0] == rows && scales.shape[1] == columns,
            "scales", scales, std::string(to_string(dtype)) + " [" + n + ", " + std::to_string(columns) + "]");
  }
  return {rows, payload_bytes, std::int64_t{columns} * format.scale_bytes()};
}

int hidden_of(const ConstTensor& rows, const char* what) {
  if (rows.rank != 2 || !may_be_hidden(rows.shape[1]))
    refuse(what, rows, "[n, hidden] with hidden a positive multiple of 32");
  return static_cast<int>(rows.shape[1]);
}

void require_values(const PyFormat& self) {
  if (!self.format.encodes())
    throw Error(ErrorKind::invalid_argument, std::string("format is ") + self.format.name() +
                                                 "; its bytes are never looked at, so nothing encodes or decodes them");
}

int encode(const PyFormat& self, nb::handle tokens, nb::handle payload, nb::handle scales, nb::handle scale) {
  require_values(self);
  Arrays arrays;
  const ConstTensor in = arrays.read(tokens, "tokens");
  const Tensor codes = arrays.fill(payload, "payload"), factors = arrays.fill(scales, "scales");
  const int hidden = hidden_of(in, "tokens");
  require(in.dtype == DType::bf16 || in.dtype == DType::f16 || in.dtype == DType::f32, "tokens", in,
          "bf16, f16 or f32 [n, hidden]");
  const float input_scale = input_scale_of(scale);
  const RowBytes row = checked_rows(self.format, codes, factors, in.shape[0], hidden);
  const nb::gil_scoped_release without_gil;
  RowBuffer row_codes(static_cast<std::size_t>(row.payload)), row_scales(static_cast<std::size_t>(row.scales));
  const auto bytes = static_cast<std::int64_t>(size_of(in.dtype)) * hidden;
  int non_finite = 0;
  for (std::int64_t index = 0; index < row.rows; ++index) {
    const InputRow token{in.as<std::byte>() + index * bytes, in.dtype};
    non_finite += self.format.encode(SerialGroup{}, token, hidden, input_scale, row_codes.data(), row_scales.data());
    std::memcpy(codes.as<std::byte>() + index * row.payload, row_codes.data(), static_cast<std::size_t>(row.payload));
    if (row.scales != 0)
      std::memcpy(factors.as<std::byte>() + index * row.scales, row_scales.data(),
                  static_cast<std::size_t>(row.scales));
  }
  return non_finite;
}

void decode(const PyFormat& self, nb::handle payload, nb::handle scales, nb::handle values, nb::handle scale) {
  require_values(self);
  Arrays arrays;
  const ConstTensor codes = arrays.read(payload, "payload"), factors = arrays.read(scales, "scales");
  const Tensor out = arrays.fill(values, "values");
  const int hidden = hidden_of(out, "values");
  require(out.dtype == DType::f32, "values", out, "f32 [n, hidden]");
  const float input_scale = input_scale_of(scale);
  const RowBytes row = checked_rows(self.format, codes, factors, out.shape[0], hidden);
  const nb::gil_scoped_release without_gil;
  RowBuffer row_codes(static_cast<std::size_t>(row.payload)), row_scales(static_cast<std::size_t>(row.scales));
  for (std::int64_t index = 0; index < row.rows; ++index) {
    std::memcpy(row_codes.data(), codes.as<std::byte>() + index * row.payload, static_cast<std::size_t>(row.payload));
    if (row.scales != 0)
      std::memcpy(row_scales.data(), factors.as<std::byte>() + index * row.scales,
                  static_cast<std::size_t>(row.scales));
    self.format.decode(SerialGroup{}, row_codes.data(), row_scales.data(), hidden, input_scale,
                       out.as<float>() + index * hidden);
  }
}

// Also formats that only results have. What is none is refused with the names of those that tokens have.
PyFormat py_format_named(const std::string& name) {
  for (const AnyFormat& format : result_formats())
    if (name == format.name()) return {format};
  return {format_named(name)};
}

PyFormat py_bytes_format(nb::handle payload_bytes, nb::handle scales, nb::handle scale_bytes,
                         const std::string& layout) {
  using enum ScaleLayout;
  return {
      bytes_format({.payload_bytes = whole_as<std::int64_t>("payload_bytes", payload_bytes),
                    .scales_per_row = whole_as<int>("scales_per_row", scales),
                    .scale_bytes = whole_as<int>("scale_bytes", scale_bytes),
                    .scale_layout = value_named("scale_layout", layout, std::array{row_major, transposed, tiled})})};
}

std::vector<PyFormat> list_of(std::span<const AnyFormat> formats) {
  std::vector<PyFormat> list;
  for (const AnyFormat& format : formats) list.push_back({format});
  return list;
}

}  // namespace

void add_formats(nb::module_& module) {
  nb::class_<PyFormat>(module, "Format")
      .def_prop_ro("name", [](const PyFormat& self) { return self.format.name(); })
      .def_prop_ro("block", [](const PyFormat& self) { return self.format.block(); })
      .def_prop_ro("scale_bytes", [](const PyFormat& self) { return self.format.scale_bytes(); })
      .def_prop_ro("scale_layout", [](const PyFormat& self) { return to_string(self.format.scale_layout()); })
      .def_prop_ro("alignment", [](const PyFormat& self) { return self.format.alignment(); })
      .def_prop_ro("encodes", [](const PyFormat& self) { return self.format.encodes(); })
      .def_prop_ro("takes_input_scale", [](const PyFormat& self) { return self.format.takes_input_scale(); })
      .def(
          "payload_bytes",
          [](const PyFormat& self, nb::handle hidden) { return self.format.payload_bytes(hidden_of(hidden)); },
          "hidden"_a.none())
      .def(
          "scales_per_row",
          [](const PyFormat& self, nb::handle hidden) { return scales_per_row(self.format, hidden_of(hidden)); },
          "hidden"_a.none())
      .def(
          "message_bytes",
          [](const PyFormat& self, nb::handle hidden) { return message_bytes(self.format, hidden_of(hidden)); },
          "hidden"_a.none())
      .def("encode", &encode, "tokens"_a, "payload"_a, "scales"_a.none(), "input_scale"_a.none())
      .def("decode", &decode, "payload"_a, "scales"_a.none(), "values"_a, "input_scale"_a.none())
      .def("__repr__", [](const PyFormat& self) { return std::string("Format(") + self.format.name() + ")"; });
  module.def("all_formats", [] { return list_of(all_formats()); });
  module.def("result_formats", [] { return list_of(result_formats()); });
  module.def("format_named", &py_format_named, "name"_a);
  module.def("bytes_format", &py_bytes_format, "payload_bytes"_a.none(), "scales_per_row"_a.none(),
             "scale_bytes"_a.none(), "scale_layout"_a);
}

}  // namespace ferry::python
