// Layout of tables, and how values are written for people.
#include "tool/text/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "ferry/error.h"
#include "tool/text/output.h"
#include "tool/text/progress.h"

namespace ferry::app {
namespace {

// Characters, not bytes: titles and cells may hold UTF-8.
std::size_t width_of(const std::string& text) {
  std::size_t width = 0;
  for (const char c : text) width += (static_cast<unsigned char>(c) & 0xC0u) != 0x80u;
  return width;
}

std::string coloured(const std::string& text, Tone tone) {
  if (tone == Tone::plain || !shows_colours()) return text;
  const char* code = tone == Tone::good ? "32" : tone == Tone::bad ? "1;31" : "2";
  return fmt::format("\033[{}m{}\033[0m", code, text);
}

void append_padded(std::string& line, const Cell& cell, std::size_t width, bool left) {
  const std::size_t padding = width - std::min(width, width_of(cell.text));
  if (!left) line.append(padding, ' ');
  line += coloured(cell.text, cell.tone);
  if (left) line.append(padding, ' ');
}

void end_line(std::string& text) {
  while (!text.empty() && text.back() == ' ') text.pop_back();
  text += '\n';
}

// "%", "MB", "us),": belongs to the number before it.
bool is_unit(const std::string& word) {
  static constexpr std::array kUnits = {"%", "B", "kB", "MB", "GB", "TB", "PB", "EB", "us", "ms", "s"};
  const std::string bare = word.substr(0, word.find_last_not_of(".,;:)") + 1);
  return std::find(kUnits.begin(), kUnits.end(), bare) != kUnits.end();
}

// Words, and numbers with their units.
std::vector<std::string> unbroken(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const bool follows_number = !parts.empty() && std::isdigit(static_cast<unsigned char>(parts.back().back())) != 0;
    if (follows_number && is_unit(word))
      parts.back() += " " + word;
    else
      parts.push_back(word);
  }
  return parts;
}

// Broken between words; a word that is longer has a line of its own.
std::vector<std::string> lines_of(const std::string& text, std::size_t width) {
  std::vector<std::string> lines = {""};
  for (const std::string& word : unbroken(text)) {
    if (!lines.back().empty() && width_of(lines.back()) + 1 + width_of(word) > width) lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + word;
  }
  return lines;
}

std::size_t longest_of(const std::vector<std::string>& lines) {
  std::size_t longest = 0;
  for (const std::string& line : lines) longest = std::max(longest, width_of(line));
  return longest;
}

constexpr std::size_t kNarrowestText = 30;  // that a last column is broken to

// Widths that titles are broken to, and spaces between columns: what is tried until the lines are short enough.
struct Try {
  std::size_t title_width, between;
};
constexpr std::array kTries = {Try{kLineWidth, 2}, Try{10, 2}, Try{0, 2}, Try{0, 1}};

std::vector<std::size_t> and_one_more(std::vector<std::size_t> columns) {
  columns.push_back(columns.back() + 1);
  return columns;
}

Json finite_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

}  // namespace

std::string wrapped(const std::string& text, const std::string& label) {
  std::string result;
  for (const std::string& line : lines_of(text, line_width() - width_of(label)))
    result += (result.empty() ? label : std::string(width_of(label), ' ')) + line + "\n";
  return result;
}

std::string in_lines(const std::string& text, std::size_t width) {
  return fmt::format("{}", fmt::join(lines_of(text, width), "\n"));
}

Cell text_cell(const std::string& text, Tone tone) { return {text, text, tone}; }

Cell count_cell(std::int64_t count) { return {count, is_for_people() ? human_count(count) : std::to_string(count)}; }

Cell number_cell(double value, int decimals) {
  return {finite_or_null(value), fmt::format("{:.{}f}", value, decimals)};
}
Cell scientific_cell(double value) { return {finite_or_null(value), fmt::format("{:.2e}", value)}; }
Cell bytes_cell(std::uint64_t bytes) { return {bytes, human_bytes(bytes)}; }
Cell yes_no_cell(bool value, const char* yes, const char* no) {
  return {value, value ? yes : no, value ? Tone::good : Tone::bad};
}

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

// `title_width`: that titles are broken to, where their column is narrower.
Table::Layout Table::layout_of(std::size_t title_width, std::size_t between) const {
  Layout layout;
  layout.between = between;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t width = columns_[c].least;
    for (const auto& row : rows_) width = std::max(width, width_of(row[c].text));
    layout.titles.push_back(lines_of(columns_[c].title, std::max(width, title_width)));
    layout.widths.push_back(std::max(width, longest_of(layout.titles.back())));
    layout.total += layout.widths.back() + (c == 0 ? 0 : between);
  }
  return layout;
}

Table::Layout Table::layout_of_all() const {
  Layout layout;
  for (const auto& [title_width, between] : kTries) {
    layout = layout_of(title_width, between);
    if (layout.total <= line_width()) break;
    std::size_t& last = layout.widths.back();
    const std::size_t others = layout.total - last;
    if (!columns_.back().left || last <= kNarrowestText || others + kNarrowestText > line_width()) continue;
    last = line_width() - others;  // its text is broken
    layout.total = line_width();
    break;
  }
  return layout;
}

Table::Layout Table::layout_of_least() const {
  Layout layout;
  for (const Column& column : columns_) {
    layout.titles.push_back({column.title});
    layout.widths.push_back(std::max(column.least, width_of(column.title)));
    layout.total += layout.widths.back() + layout.between;
  }
  layout.total -= layout.between;
  if (layout.total < line_width()) layout.widths.back() += line_width() - layout.total;
  layout.total = std::max(layout.total, line_width());
  return layout;
}

std::string Table::head(const Layout& layout) const {
  std::size_t height = 1;
  for (const auto& lines : layout.titles) height = std::max(height, lines.size());
  std::string text;
  for (std::size_t line = 0; line < height; ++line) {
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const auto& lines = layout.titles[c];
      const std::size_t above = height - lines.size();  // titles stand on the rule
      if (c != 0) text.append(layout.between, ' ');
      append_padded(text, text_cell(line < above ? "" : lines[line - above]), layout.widths[c], columns_[c].left);
    }
    end_line(text);
  }
  text.append(layout.total, '-');
  return text + "\n";
}

std::string Table::row(const Layout& layout, const std::vector<Cell>& cells) const {
  std::vector<std::string> last = {cells.back().text};
  if (columns_.back().left && width_of(last[0]) > layout.widths.back()) last = lines_of(last[0], layout.widths.back());
  std::string text;
  for (std::size_t line = 0; line < last.size(); ++line) {
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (c != 0) text.append(layout.between, ' ');
      const Cell cell = c + 1 == columns_.size() ? text_cell(last[line], cells[c].tone)
                        : line == 0              ? cells[c]
                                                 : text_cell("");
      append_padded(text, cell, layout.widths[c], columns_[c].left);
    }
    end_line(text);
  }
  return text;
}

bool Table::fits() const { return layout_of_all().total <= line_width(); }

bool Table::is_same_name(std::size_t column) const {
  const auto is_first = [&](const auto& row) { return row[column].text == rows_[0][column].text; };
  return columns_[column].left && !rows_.empty() && std::ranges::all_of(rows_, is_first);
}

Table Table::part(const std::vector<std::size_t>& chosen) const {
  std::vector<Column> columns;
  for (const std::size_t column : chosen) columns.push_back(columns_[column]);
  Table table(std::move(columns));
  for (const auto& row : rows_) {
    std::vector<Cell> cells;
    for (const std::size_t column : chosen) cells.push_back(row[column]);
    table.add_row(std::move(cells));
  }
  return table;
}

Table Table::with_numbers() const {
  Table table = *this;
  table.columns_.insert(table.columns_.begin(), {"line", "line"});
  for (std::size_t i = 0; i < rows_.size(); ++i)
    table.rows_[i].insert(table.rows_[i].begin(), count_cell(static_cast<std::int64_t>(i) + 1));
  return table;
}

std::string Table::one_text() const {
  const Layout layout = layout_of_all();
  std::string text = head(layout);
  for (const auto& cells : rows_) text += row(layout, cells);
  return text;
}

std::string Table::cut_text() const {
  std::string text;
  std::vector<std::size_t> chosen;
  for (std::size_t next = 0; next < columns_.size(); ++next) {
    chosen.push_back(next);
    if (next + 1 < columns_.size() && part(and_one_more(chosen)).with_numbers().fits()) continue;
    if (!text.empty()) text += '\n';
    text += part(chosen).with_numbers().one_text();
    chosen.clear();
  }
  return text;
}

std::string Table::text() const {
  if (fits()) return one_text();
  std::string same;
  std::vector<std::size_t> others;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    if (c + 1 != columns_.size() && is_same_name(c))
      same += fmt::format("{}{} {}", same.empty() ? "In every line: " : ", ", columns_[c].title, rows_[0][c].text);
    else
      others.push_back(c);
  }
  const Table rest = part(others);
  return (same.empty() ? "" : wrapped(same + ".")) + (rest.fits() ? rest.one_text() : rest.cut_text());
}

std::string Table::head() const { return head(layout_of_least()); }
std::string Table::last_row() const { return row(layout_of_least(), rows_.back()); }

std::string Table::footnote() const {
  std::string text;
  for (const Column& column : columns_)
    if (!column.meaning.empty()) text += wrapped(column.meaning + ".", column.title + ": ");
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
  Progress::clear_shown();
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw Error(ErrorKind::io, fmt::format("cannot write to standard output: {}", std::strerror(errno)));
}

void print(const Json& json) { print(json.dump(2) + "\n"); }

}  // namespace ferry::app
