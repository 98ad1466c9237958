// Places of the parts of a heat map.
#include "tool/demo/picture/heat_map.h"

#include <algorithm>
#include <numeric>

namespace ferry::app {
namespace {

constexpr int kCellWidth = 12;
constexpr int kCellHeight = 15;
constexpr int kGroupGap = 10;
constexpr int kLeft = 118;  // of the cells
constexpr int kTotalWidth = 112;
constexpr int kLabelWidth = 236;
constexpr int kMargin = 24;
constexpr int kAbove = 24;       // of the titles over totals and labels
constexpr int kAxis = 48;        // from the cells to the legend
constexpr int kTurnedName = 56;  // lines of a group that are lower have its name beside them, not turned

class HeatMapDrawing {
 public:
  HeatMapDrawing(const HeatMap& map, int top)
      : map_(map), top_(top + kAbove), columns_(static_cast<int>(map.cells.front().size())) {
    right_ = kLeft + columns_ * kCellWidth;
    for (const auto& line : map.cells) {
      largest_ = std::max(largest_, *std::max_element(line.begin(), line.end()));
      largest_total_ = std::max(largest_total_, std::accumulate(line.begin(), line.end(), 0));
    }
  }

  Drawn draw() {
    shapes_ += svg_text(right_ + 14, top_ - 12, map_.total_title, {.size = 12});
    shapes_ += svg_text(right_ + kTotalWidth, top_ - 12, map_.label_title, {.size = 12});
    int line = 0, y = top_;
    for (const HeatMap::Group& group : map_.groups) {
      draw_group(group, y);
      for (int last = line + group.lines; line < last; ++line, y += kCellHeight) draw_line(line, y);
      y += kGroupGap;
    }
    const int bottom = y - kGroupGap;
    draw_axis(bottom);
    draw_legend(bottom + kAxis);
    return {shapes_, right_ + kTotalWidth + kLabelWidth, bottom + kAxis + kCellHeight};
  }

 private:
  double opacity(int value) const { return value == 0 ? 0.0 : 0.05 + 0.95 * value / largest_; }

  void draw_line(int line, int y) {
    const std::vector<int>& cells = map_.cells[static_cast<std::size_t>(line)];
    shapes_ += svg_text(kLeft - 8, y + 11.5, map_.line_names[static_cast<std::size_t>(line)], {.anchor = Anchor::end});
    for (int column = 0; column < columns_; ++column)
      if (const int value = cells[static_cast<std::size_t>(column)]; value != 0)
        shapes_ += svg_box({kLeft + column * kCellWidth, y, kCellWidth - 1, kCellHeight - 1}, "cell", opacity(value));
    const int total = std::accumulate(cells.begin(), cells.end(), 0);
    const int length = static_cast<int>(52.0 * total / largest_total_);
    shapes_ += svg_box({right_ + 14, y + 3, length, 9}, "total");
    shapes_ += svg_text(right_ + 20 + length, y + 11.5, std::to_string(total), {.size = 10});
    shapes_ += svg_text(right_ + kTotalWidth, y + 11.5, map_.line_labels[static_cast<std::size_t>(line)],
                        {.colour = Colour::ink});
  }

  void draw_group(const HeatMap::Group& group, int y) {
    const int height = group.lines * kCellHeight;
    const int middle = y + height / 2;
    shapes_ += svg_box({kLeft - 2, y - 2, right_ - kLeft + 3, height + 3}, "frame");
    if (height >= kTurnedName)
      shapes_ += svg_text(kMargin + 10, middle, group.name,
                          {.size = 13, .colour = Colour::ink, .anchor = Anchor::middle, .bold = true, .upright = true});
    else
      shapes_ += svg_text(kMargin - 14, middle + 4, group.name, {.size = 10, .colour = Colour::ink});
  }

  // A tick lies where its number begins, be it in the middle of a column.
  void draw_axis(int bottom) {
    constexpr double kMostTicks = 9;
    const int end = columns_ * map_.column_width;
    const auto step = static_cast<int>(round_number(end / kMostTicks));
    for (int value = 0; value < end; value += step) {
      const double x = kLeft + static_cast<double>(value) * kCellWidth / map_.column_width;
      shapes_ += svg_box({static_cast<int>(x), bottom + 2, 1, 5}, "frame");
      shapes_ += svg_text(x, bottom + 18, std::to_string(value), {.anchor = Anchor::middle});
    }
    shapes_ += svg_text((kLeft + right_) / 2.0, bottom + 36, map_.x_title, {.size = 12, .anchor = Anchor::middle});
  }

  void draw_legend(int top) {
    constexpr double kMostSteps = 6;
    constexpr int kWidth = 26;
    shapes_ += svg_text(kLeft, top + 11, map_.cell_meaning, {.size = 12});
    int x = kLeft + static_cast<int>(7.0 * static_cast<double>(map_.cell_meaning.size()));
    const auto step = static_cast<int>(round_number(largest_ / kMostSteps));
    for (int value = 0; value <= largest_; value += step, x += kWidth + 26) {
      shapes_ += svg_box({x, top, kWidth, 14}, "cell", opacity(value));
      shapes_ += svg_box({x, top, kWidth, 14}, "frame");
      shapes_ += svg_text(x + kWidth + 3, top + 11, std::to_string(value));
    }
  }

  const HeatMap& map_;
  const int top_;
  const int columns_;
  int right_ = 0;
  int largest_ = 1;
  int largest_total_ = 1;
  std::string shapes_;
};

}  // namespace

Drawn draw_heat_map(const HeatMap& map, int top) { return HeatMapDrawing(map, top).draw(); }

}  // namespace ferry::app
