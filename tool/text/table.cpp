// Layout of tables, and how values are written for people.
#include "tool/text/table.h"

#include <fmt/core.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "ferry/error.h"
#include "tool/text/output.h"

namespace ferry::app {
namespace {

// Characters, not bytes: titles and cells may hold UTF-8.
std::size_t width_of(const std::string& text) {
  std::size_t width = 0;
  for (const char c : text) width += (static_cast<unsigned char>(c) & 0xC0u) != 0x80u;
  return width;
}

void append_padded(std::string& line, const std::string& text, std::size_t width, bool left) {
  const std::size_t padding = width - std::min(width, width_of(text));
  if (!left) line.append(padding, ' ');
  line += text;
  if (left) line.append(padding, ' ');
}

void end_line(std::string& text) {
  while (!text.empty() && text.back() == ' ') text.pop_back();
  text += '\n';
}

Json finite_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

}  // namespace

Cell text_cell(const std::string& text) { return {text, text}; }

Cell count_cell(std::int64_t count) {
  std::string digits = std::to_string(count);
  const std::size_t first = digits[0] == '-' ? 1 : 0;
  for (std::size_t place = digits.size(); place > first + 3;) {
    place -= 3;
    digits.insert(place, 1, ' ');
  }
  return {count, digits};
}

Cell number_cell(double value, int decimals) {
  return {finite_or_null(value), fmt::format("{:.{}f}", value, decimals)};
}
Cell scientific_cell(double value) { return {finite_or_null(value), fmt::format("{:.2e}", value)}; }
Cell bytes_cell(std::uint64_t bytes) { return {bytes, human_bytes(bytes)}; }
Cell yes_no_cell(bool value, const char* yes, const char* no) { return {value, value ? yes : no}; }

Table::Table(const std::vector<Fields>& rows) {
  for (const Field& field : rows.at(0)) columns_.push_back(field.column);
  for (const Fields& row : rows) {
    std::vector<Cell> cells;
    for (const Field& field : row) cells.push_back(field.cell);
    add_row(std::move(cells));
  }
}

void Table::add_row(std::vector<Cell> cells) {
  if (cells.size() != columns_.size()) throw std::logic_error("a row has as many cells as the table has columns");
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  std::size_t total = 0;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t width = width_of(columns_[c].title);
    for (const auto& row : rows_) width = std::max(width, width_of(row[c].text));
    widths.push_back(width);
    total += width + (c == 0 ? 0 : 2);
  }
  std::string text;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    if (c != 0) text += "  ";
    append_padded(text, columns_[c].title, widths[c], columns_[c].left);
  }
  end_line(text);
  text.append(total, '-');
  text += '\n';
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (c != 0) text += "  ";
      append_padded(text, row[c].text, widths[c], columns_[c].left);
    }
    end_line(text);
  }
  return text;
}

Json Table::json() const {
  Json array = Json::array();
  for (const auto& row : rows_) {
    Json object = Json::object();
    for (std::size_t c = 0; c < columns_.size(); ++c) object[columns_[c].key] = row[c].value;
    array.push_back(std::move(object));
  }
  return array;
}

void print(const std::string& text) {
  if (!prints()) return;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw Error(ErrorKind::io, fmt::format("cannot write to standard output: {}", std::strerror(errno)));
}

void print(const Json& json) { print(json.dump(2) + "\n"); }

}  // namespace ferry::app
