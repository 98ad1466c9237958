// Tables that a command prints: aligned text for people, or JSON for programs, from the same cells.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tool/text/human.h"
#include "tool/text/json.h"
#include "tool/text/output.h"

namespace ferry::app {

// Lines of at most line_width() characters, broken between words, but not before a unit, each ended. `label` stands
// before the first one, and as many spaces before the others.
std::string wrapped(const std::string& text, const std::string& label = "");
// Lines of at most `width` characters, with line ends between them.
std::string in_lines(const std::string& text, std::size_t width);

enum class Tone : std::uint8_t { plain, good, bad, faint };  // colours, on a terminal that takes them

// One value twice: as JSON holds it, and as a person reads it.
struct Cell {
  Json value;
  std::string text;
  Tone tone = Tone::plain;
};

Cell text_cell(const std::string& text, Tone tone = Tone::plain);
Cell count_cell(std::int64_t count);           // 12345 -> "12 345" on a terminal, else "12345", as programs read it
Cell number_cell(double value, int decimals);  // fixed point
Cell scientific_cell(double value);            // "1.2e-03"
Cell bytes_cell(std::uint64_t bytes);          // "1.5 MB"; the JSON holds bytes
Cell yes_no_cell(bool value, const char* yes = "yes", const char* no = "NO");

struct Column {
  std::string key;           // in JSON
  std::string title;         // in text
  bool left = false;         // align left; numbers stay right
  std::string meaning = "";  // where the title does not say it: for footnote()
  std::size_t least = 0;     // characters that it takes at least: for rows that are printed as they come
};

// A column and what stands in it, for rows that say both at once.
struct Field {
  Column column;
  Cell cell;
};
using Fields = std::vector<Field>;

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  explicit Table(const std::vector<Fields>& rows);  // of one row or more, which all have the same columns

  void add_row(std::vector<Cell> cells);
  // A line of titles, a rule, and a line per row. Where this is wider than line_width(), titles are broken into several
  // lines, and then what stands in the last column, if that is aligned left. Where that does not do, columns aligned
  // left that say the same in every row become words above the table; then it is cut into tables, whose rows have
  // numbers.
  std::string text() const;
  // The same in pieces, for rows that are printed as they come: all but the last column are as wide as Column::least
  // says, and the last one has the rest of the line.
  std::string head() const;
  std::string last_row() const;
  std::string footnote() const;  // what the columns mean, a line each, wrapped; empty where none has a meaning
  Json json() const;             // an array with an object per row

 private:
  struct Layout {
    std::vector<std::size_t> widths;
    std::vector<std::vector<std::string>> titles;  // of each column, its lines
    std::size_t total = 0;
    std::size_t between = 2;  // spaces from column to column
  };
  Layout layout_of(std::size_t title_width, std::size_t between) const;
  Layout layout_of_all() const;
  Layout layout_of_least() const;
  bool fits() const;
  bool is_same_name(std::size_t column) const;
  Table part(const std::vector<std::size_t>& chosen) const;  // these columns of it
  Table with_numbers() const;                                // of its rows, in a first column
  std::string one_text() const;
  std::string cut_text() const;
  std::string head(const Layout& layout) const;
  std::string row(const Layout& layout, const std::vector<Cell>& cells) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// Writes to standard output, in the first process of a job only. Throws Error(io) when that fails.
void print(const std::string& text);
void print(const Json& json);

}  // namespace ferry::app
