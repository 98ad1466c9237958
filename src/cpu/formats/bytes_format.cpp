// Formats whose bytes nobody looks at. Each has a table of its own, made once and kept as long as the program.
#include "cpu/formats/bytes_format.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "ferry/error.h"

namespace ferry {
namespace {

constexpr std::string_view kPrefix = "bytes_";
constexpr std::int64_t kMostPayload = std::int64_t{1} << 25;
constexpr int kMostScales = 1 << 20;

template <class... Values>
[[noreturn]] void refuse(fmt::format_string<Values...> text, Values&&... values) {
  throw Error(ErrorKind::invalid_argument, "bytes_format: " + fmt::format(text, std::forward<Values>(values)...));
}

void require_valid(const BytesRow& row) {
  if (row.payload_bytes <= 0 || row.payload_bytes % 16 != 0 || row.payload_bytes > kMostPayload)
    refuse("payload_bytes is {}; it must be a positive multiple of 16, at most {}", row.payload_bytes, kMostPayload);
  if (row.scales_per_row < 0 || row.scales_per_row > kMostScales)
    refuse("scales_per_row is {}; it must be 0 to {}", row.scales_per_row, kMostScales);
  if (row.scales_per_row == 0) return;
  if (row.scale_bytes != 1 && row.scale_bytes != 2 && row.scale_bytes != 4)
    refuse("scale_bytes is {}; it must be 1, 2 or 4", row.scale_bytes);
  const bool fits = row.scale_layout == ScaleLayout::row_major ||
                    (row.scale_layout == ScaleLayout::transposed && row.scale_bytes != 2) ||
                    (row.scale_layout == ScaleLayout::tiled && row.scale_bytes == 1);
  if (!fits)
    refuse(
        "scale_layout is {} and scale_bytes {}; it must be row_major, transposed with scales of 1 or 4 bytes, or "
        "tiled with scales of 1 byte",
        to_string(row.scale_layout), row.scale_bytes);
}

std::string name_of(const BytesRow& row) {
  std::string name = fmt::format("{}{}", kPrefix, row.payload_bytes);
  if (row.scales_per_row == 0) return name;
  name += fmt::format("_{}x{}", row.scales_per_row, row.scale_bytes);
  return row.scale_layout == ScaleLayout::row_major ? name : name + "_" + to_string(row.scale_layout);
}

int refuse_to_encode(InputRow, int, float, std::byte*, std::byte*) {
  throw Error(ErrorKind::unsupported, "encode: the bytes of a bytes_format are never looked at; give encoded tokens");
}
void refuse_to_decode(const std::byte*, const std::byte*, int, float, float*) {
  throw Error(ErrorKind::unsupported, "decode: the bytes of a bytes_format are never looked at; decode them yourself");
}

struct Entry {
  BytesRow row;
  std::string name;
  FormatTable table;

  explicit Entry(const BytesRow& given) : row(given), name(name_of(given)), table(table_of()) {}
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

 private:
  // A scale of two bytes is two of one byte: row-major, so they stay neighbours.
  FormatTable table_of() const {
    const bool has_scales = row.scales_per_row != 0;
    return {.name = name.c_str(),
            .block = 0,
            .scale_bytes = !has_scales            ? 0
                           : row.scale_bytes == 4 ? 4
                                                  : 1,
            .scale_layout = has_scales ? row.scale_layout : ScaleLayout::none,
            .alignment = 1,
            .payload_bytes = nullptr,
            .encode = &refuse_to_encode,
            .decode = &refuse_to_decode,
            .takes_input_scale = false,
            .bytes = &row};
  }
};

// Never destroyed: an exchange of static storage may outlive anything of this file.
const FormatTable& table_for(const BytesRow& row) {
  static std::mutex guard;
  static auto* const entries = new std::map<std::string, std::unique_ptr<const Entry>>;
  const std::lock_guard lock(guard);
  std::unique_ptr<const Entry>& entry = (*entries)[name_of(row)];
  if (entry == nullptr) entry = std::make_unique<const Entry>(row);
  return entry->table;
}

// Takes a whole number off the front of `text`.
template <class Number>
bool take_number(std::string_view& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}
bool take(std::string_view& text, std::string_view what) {
  if (!text.starts_with(what)) return false;
  text.remove_prefix(what.size());
  return true;
}

// Whether the name has the form of those that name_of makes.
bool read_name(std::string_view name, BytesRow& row) {
  if (!take(name, kPrefix) || !take_number(name, row.payload_bytes)) return false;
  if (name.empty()) return true;
  if (!take(name, "_") || !take_number(name, row.scales_per_row) || !take(name, "x") ||
      !take_number(name, row.scale_bytes))
    return false;
  if (name.empty()) return row.scales_per_row != 0;
  for (const ScaleLayout layout : {ScaleLayout::transposed, ScaleLayout::tiled})
    if (name == std::string("_") + to_string(layout)) {
      row.scale_layout = layout;
      return row.scales_per_row != 0;
    }
  return false;
}

}  // namespace

AnyFormat bytes_format(const BytesRow& row) {
  require_valid(row);
  return AnyFormat(table_for(row));
}

std::optional<AnyFormat> bytes_format_named(std::string_view name) {
  BytesRow row;
  if (!name.starts_with(kPrefix)) return std::nullopt;
  if (!read_name(name, row) || name_of(row) != name)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("format: '{}' is no name of a bytes_format; such are bytes_7168, bytes_7168_56x4 (56 "
                            "row-major scales of 4 bytes), bytes_7168_56x4_transposed and bytes_7168_224x1_tiled",
                            name));
  return bytes_format(row);
}

}  // namespace ferry
