// Tables that a command prints: aligned text for people, or JSON for programs, from the same cells.
#pragma once

#include <string>
#include <vector>

#include "tool/text/human.h"
#include "tool/text/json.h"

namespace ferry::app {

// One value twice: as JSON holds it, and as a person reads it.
struct Cell {
  Json value;
  std::string text;
};

Cell text_cell(const std::string& text);
Cell count_cell(std::int64_t count);           // 12345 -> "12 345"
Cell number_cell(double value, int decimals);  // fixed point
Cell scientific_cell(double value);            // "1.2e-03"
Cell bytes_cell(std::uint64_t bytes);          // "1.5 MB"; the JSON holds bytes
Cell yes_no_cell(bool value, const char* yes = "yes", const char* no = "NO");

struct Column {
  std::string key;    // in JSON
  std::string title;  // in text
  bool left = false;  // align left; numbers stay right
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
  std::string text() const;  // a line of titles, a rule, and a line per row
  Json json() const;         // an array with an object per row

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// Writes to standard output, in the first process of a job only. Throws Error(io) when that fails.
void print(const std::string& text);
void print(const Json& json);

}  // namespace ferry::app
