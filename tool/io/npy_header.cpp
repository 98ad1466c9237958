// The header of a .npy file: a magic, a version, and a Python dictionary of three entries.
#include <fmt/core.h>

#include <array>
#include <cctype>

#include "ferry/error.h"
#include "tool/io/npy.h"

namespace ferry::app {
namespace {

struct KnownDtype {
  const char* descr;  // without the byte order
  const char* name;
  DType dtype;
};
constexpr std::array kDtypes = {
    KnownDtype{"f4", "float32", DType::f32},    KnownDtype{"f2", "float16", DType::f16},
    KnownDtype{"f8", "float64", DType::f64},    KnownDtype{"i4", "int32", DType::i32},
    KnownDtype{"i8", "int64", DType::i64},      KnownDtype{"u4", "uint32", DType::u32},
    KnownDtype{"u1", "uint8", DType::u8},       KnownDtype{"i1", "int8", DType::none},
    KnownDtype{"i2", "int16", DType::none},     KnownDtype{"u2", "uint16", DType::none},
    KnownDtype{"u8", "uint64", DType::none},    KnownDtype{"b1", "bool", DType::none},
    KnownDtype{"c8", "complex64", DType::none}, KnownDtype{"c16", "complex128", DType::none},
};

// Not a .npy file, or not a whole one.
[[noreturn]] void damaged(const std::string& why) { throw Error(ErrorKind::io, why); }
// A .npy file, of an array that no command takes.
[[noreturn]] void unsuitable(const std::string& why) { throw Error(ErrorKind::invalid_argument, why); }

// Reads the dictionary {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } in any order and spacing.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : text_(text) {}

  void read(NpyHeader& header) {
    take('{');
    bool has_descr = false, has_order = false, has_shape = false;
    while (!peek('}')) {
      const std::string key = quoted();
      take(':');
      if (key == "descr" && !has_descr) {
        descr(header);
        has_descr = true;
      } else if (key == "fortran_order" && !has_order) {
        header.fortran_order = boolean();
        has_order = true;
      } else if (key == "shape" && !has_shape) {
        shape(header);
        has_shape = true;
      } else {
        bad(fmt::format("it has the entry '{}'", key));
      }
      if (!peek('}')) take(',');
    }
    take('}');
    skip_space();
    if (!text_.empty()) bad("something follows its dictionary");
    if (!has_descr || !has_order || !has_shape) bad("it lacks 'descr', 'fortran_order' or 'shape'");
  }

 private:
  [[noreturn]] static void bad(const std::string& why) { damaged("its npy header is damaged: " + why); }

  void skip_space() {
    while (!text_.empty() && std::isspace(static_cast<unsigned char>(text_.front())) != 0) text_.remove_prefix(1);
  }
  bool peek(char c) {
    skip_space();
    return !text_.empty() && text_.front() == c;
  }
  void take(char c) {
    if (!peek(c)) bad(fmt::format("'{}' is missing", c));
    text_.remove_prefix(1);
  }
  std::string quoted() {
    skip_space();
    if (text_.empty() || (text_.front() != '\'' && text_.front() != '"')) bad("a quoted name is missing");
    const std::size_t end = text_.find(text_.front(), 1);
    if (end == std::string_view::npos) bad("a quote is not closed");
    std::string value(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return value;
  }
  bool boolean() {
    skip_space();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}}) {
      if (!text_.starts_with(word)) continue;
      text_.remove_prefix(word.size());
      return value;
    }
    bad("'fortran_order' is neither True nor False");
  }
  void descr(NpyHeader& header) {
    if (peek('[')) unsuitable("it holds records, not numbers");
    const std::string value = quoted();
    if (value.starts_with('>')) unsuitable(fmt::format("its dtype '{}' is big-endian; save it little-endian", value));
    const std::string_view type = std::string_view(value).substr(value.find_first_not_of("<|=") == 1 ? 1 : 0);
    header.dtype_name = value;
    for (const KnownDtype& known : kDtypes) {
      if (type != known.descr) continue;
      header.dtype = known.dtype;
      header.dtype_name = known.name;
    }
    if (type == "O") unsuitable("it holds Python objects, not numbers");
  }
  void shape(NpyHeader& header) {
    take('(');
    while (!peek(')')) {
      std::int64_t extent = 0;
      if (text_.empty() || std::isdigit(static_cast<unsigned char>(text_.front())) == 0)
        bad("'shape' is not a tuple of sizes");
      while (!text_.empty() && std::isdigit(static_cast<unsigned char>(text_.front())) != 0) {
        if (__builtin_mul_overflow(extent, 10, &extent) || __builtin_add_overflow(extent, text_.front() - '0', &extent))
          bad("a size in 'shape' is too large");
        text_.remove_prefix(1);
      }
      header.shape.push_back(extent);
      if (!peek(')')) take(',');
    }
    take(')');
  }

  std::string_view text_;
};

std::size_t little_endian(std::string_view bytes) {
  std::size_t value = 0;
  for (std::size_t i = bytes.size(); i > 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i - 1]);
  return value;
}

}  // namespace

NpyHeader parse_npy_header(std::string_view file) {
  constexpr std::string_view kMagic = "\x93NUMPY";
  constexpr std::size_t kVersionEnd = 8;
  if (file.starts_with("PK")) damaged("it is a .npz archive, not a .npy file; save one array with numpy.save");
  if (!file.starts_with(kMagic.substr(0, std::min(kMagic.size(), file.size()))) || file.empty())
    damaged(file.empty() ? "it is empty" : "it is not a .npy file");
  if (file.size() < kVersionEnd) damaged("it is truncated inside its npy header");
  const int major = static_cast<unsigned char>(file[6]);
  if (major < 1 || major > 3) damaged(fmt::format("its npy version is {}, must be 1 to 3", major));
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  if (file.size() < kVersionEnd + length_bytes) damaged("it is truncated inside its npy header");
  const std::size_t length = little_endian(file.substr(kVersionEnd, length_bytes));
  NpyHeader header;
  header.data_offset = kVersionEnd + length_bytes + length;
  if (file.size() < header.data_offset) damaged("it is truncated inside its npy header");
  HeaderReader(file.substr(kVersionEnd + length_bytes, length)).read(header);
  return header;
}

const char* numpy_name(DType dtype) {
  for (const KnownDtype& known : kDtypes)
    if (known.dtype == dtype) return known.name;
  return "unknown";
}

}  // namespace ferry::app
