// Tables and texts for people: what fits a line, and where it is broken.
#include "tool/text/table.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace ferry::app {
namespace {

using testing::ElementsAre;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::size_t longest(const std::string& text) {
  std::size_t most = 0;
  for (const std::string& line : lines_of(text)) most = std::max(most, line.size());
  return most;
}

std::string words(int count) {
  std::vector<std::string> all;
  for (int i = 0; i < count; ++i) all.push_back(fmt::format("word{}", i));
  return fmt::format("{}", fmt::join(all, " "));
}

// What the lines say behind their first characters.
std::string joined(std::vector<std::string> lines, std::size_t first) {
  for (std::string& line : lines) line.erase(0, first);
  return fmt::format("{}", fmt::join(lines, " "));
}

TEST(Table, StaysAsItIsWhereItFits) {
  Table table({{"a", "a title", true}, {"b", "bytes"}});
  table.add_row({text_cell("x"), count_cell(123)});
  EXPECT_THAT(lines_of(table.text()), ElementsAre("a title  bytes", "--------------", "x          123"));
}

TEST(Table, BreaksALongLastColumn) {
  Table table({{"name", "name", true}, {"what", "what it shows", true}});
  table.add_row({text_cell("first"), text_cell(words(60))});
  table.add_row({text_cell("second"), text_cell("short")});
  const std::vector<std::string> lines = lines_of(table.text());
  EXPECT_LE(longest(table.text()), kLineWidth);
  EXPECT_EQ(lines[1].size(), kLineWidth);
  EXPECT_EQ(joined({lines.begin() + 2, lines.end() - 1}, 8), words(60));
  EXPECT_EQ(lines.back(), "second  short");
}

TEST(Table, BreaksTitlesOfTooManyColumns) {
  std::vector<Column> columns;
  std::vector<Cell> cells;
  for (int i = 0; i < 16; ++i) {
    columns.push_back({"key" + std::to_string(i), "long title " + std::to_string(i)});
    cells.push_back(count_cell(i));
  }
  Table table(columns);
  table.add_row(cells);
  EXPECT_LE(longest(table.text()), kLineWidth);
  const std::vector<std::string> lines = lines_of(table.text());
  EXPECT_THAT(lines[lines.size() - 2], testing::MatchesRegex("-+"));
  EXPECT_THAT(lines.back(), testing::EndsWith(" 15"));
}

// As bench's: names that are left, then numbers.
Table wide_table(bool same_names) {
  std::vector<Column> columns;
  for (int i = 0; i < 6; ++i) columns.push_back({"name" + std::to_string(i), "name" + std::to_string(i), true});
  for (int i = 0; i < 10; ++i) columns.push_back({"key" + std::to_string(i), "value" + std::to_string(i)});
  Table table(columns);
  for (int row = 0; row < 3; ++row) {
    std::vector<Cell> cells;
    for (int i = 0; i < 6; ++i) cells.push_back(text_cell(fmt::format("a_long_name_{}_{}", i, same_names ? 7 : row)));
    for (int i = 0; i < 10; ++i) cells.push_back(count_cell(1000 * row + i));
    table.add_row(cells);
  }
  return table;
}

TEST(Table, SaysOnceWhatIsTheSameInEveryRowWhereItIsTooWide) {
  const std::vector<std::string> lines = lines_of(wide_table(true).text());
  EXPECT_LE(longest(wide_table(true).text()), kLineWidth);
  EXPECT_EQ(lines[0],
            "In every line: name0 a_long_name_0_7, name1 a_long_name_1_7, name2 a_long_name_2_7, name3 "
            "a_long_name_3_7, name4");
  EXPECT_THAT(lines[2], testing::StartsWith("value0  value1"));
  EXPECT_EQ(lines.size(), 7u);
}

TEST(Table, IsCutIntoTablesOfTheSameLinesWhereItIsTooWide) {
  const std::string text = wide_table(false).text();
  EXPECT_LE(longest(text), kLineWidth);
  const std::vector<std::string> lines = lines_of(text);
  ASSERT_EQ(lines.size(), 2 * 5 + 1u);
  EXPECT_THAT(lines[0], testing::StartsWith("line name0"));
  EXPECT_THAT(lines[4], testing::StartsWith("   3 a_long_name_0_2"));
  EXPECT_EQ(lines[5], "");
  EXPECT_THAT(lines[6], testing::StartsWith("line  value"));
  EXPECT_THAT(lines[10], testing::ContainsRegex("^   3 .*2009$"));
}

TEST(Table, IsTheSameInPieces) {
  Table table({{"name", "name", true, "", 8}, {"what", "what", true}});
  const std::string head = table.head();
  EXPECT_EQ(lines_of(head)[0], "name      what");
  table.add_row({text_cell("one"), text_cell(words(60))});
  EXPECT_THAT(table.last_row(), testing::StartsWith("one       word0 word1"));
  EXPECT_LE(longest(head + table.last_row()), kLineWidth);
}

// A number and its unit stay on one line, wherever the line ends.
TEST(Wrapped, BreaksNoUnitFromItsNumber) {
  for (const char* text : {"(40 % of the RMS)", "17.0 MB, 3.5 us), 12 s."})
    for (std::size_t width = 1; width < 30; ++width)
      for (const std::string& line : lines_of(in_lines(text, width)))
        EXPECT_THAT(line, testing::AnyOf(testing::ContainsRegex("[0-9] (%|MB|us|s)"),
                                         testing::Not(testing::ContainsRegex("^(%|MB|us|s)"))))
            << width;
  EXPECT_EQ(in_lines("all B of 3 s", 1), "all\nB\nof\n3 s");
}

TEST(Table, ExplainsItsColumns) {
  const Table table({{"n", "n", false, "tokens of each rank"}, {"b", "bytes"}, {"x", "x floor", false, "1 is best"}});
  EXPECT_EQ(table.footnote(), "n: tokens of each rank.\nx floor: 1 is best.\n");
  EXPECT_EQ(Table(std::vector<Column>{{"b", "bytes"}}).footnote(), "");
}

TEST(Wrapped, KeepsEveryWordAndItsLabel) {
  const std::string text = wrapped(words(80), "note: ");
  EXPECT_LE(longest(text), kLineWidth);
  EXPECT_EQ(joined(lines_of(text), 6), words(80));
  EXPECT_THAT(text, testing::StartsWith("note: word0"));
}

}  // namespace
}  // namespace ferry::app
