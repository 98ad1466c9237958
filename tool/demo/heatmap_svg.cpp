// One hue whose opacity is the value, so that empty cells take the background's colour, light or dark.
#include "tool/demo/heatmap_svg.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ferry::app {
namespace {

constexpr int kCellWidth = 12;
constexpr int kCellHeight = 15;
constexpr int kGroupGap = 10;
constexpr int kLeft = 118;  // of the cells
constexpr int kTop = 104;
constexpr int kTotalWidth = 112;
constexpr int kLabelWidth = 236;
constexpr int kMargin = 24;
constexpr int kBelow = 92;

const char* const kStyle = R"(<style>
text{font-family:"Helvetica Neue",Arial,"DejaVu Sans",sans-serif;fill:#1f2933}
.card{fill:#fcfcfa;stroke:#d9dcd6}.quiet{fill:#5f6b76}.cell{fill:#0b6e8f}.total{fill:#c2571a}.frame{fill:none;stroke:#c9cfcc}
@media (prefers-color-scheme:dark){text{fill:#e4e8ea}.card{fill:#12181d;stroke:#303a42}.quiet{fill:#9aa6af}.cell{fill:#4cc3e8}.total{fill:#f0924e}.frame{stroke:#3a454d}}
</style>
)";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

std::string text_at(double x, double y, int size, const std::string& text, const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\"{}>{}</text>\n", x, y, size, more, escaped(text));
}

constexpr const char* kQuiet = " class=\"quiet\"";
constexpr const char* kQuietEnd = " class=\"quiet\" text-anchor=\"end\"";
constexpr const char* kQuietMiddle = " class=\"quiet\" text-anchor=\"middle\"";

class Drawing {
 public:
  explicit Drawing(const HeatMap& map)
      : map_(map),
        lines_(static_cast<int>(map.cells.size())),
        columns_(static_cast<int>(map.cells.front().size())),
        per_group_(lines_ / static_cast<int>(map.groups.size())),
        right_(kLeft + columns_ * kCellWidth),
        bottom_(line_top(lines_ - 1) + kCellHeight) {
    for (const auto& line : map.cells) {
      largest_ = std::max(largest_, *std::max_element(line.begin(), line.end()));
      largest_total_ = std::max(largest_total_, std::accumulate(line.begin(), line.end(), 0));
    }
  }

  std::string draw() const {
    const int width = right_ + kTotalWidth + kLabelWidth + kMargin;
    const int height = bottom_ + kBelow;
    std::string svg = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
        "role=\"img\">\n<title>{2}</title>\n{3}"
        "<rect class=\"card\" x=\"0.5\" y=\"0.5\" width=\"{4}\" height=\"{5}\" rx=\"10\"/>\n",
        width, height, escaped(map_.title), kStyle, width - 1, height - 1);
    svg += text_at(kMargin, 38, 20, map_.title, " font-weight=\"600\"");
    svg += text_at(kMargin, 60, 13, map_.subtitle, kQuiet);
    svg += text_at(right_ + 14, kTop - 12, 12, map_.total_title, kQuiet);
    svg += text_at(right_ + kTotalWidth, kTop - 12, 12, map_.label_title, kQuiet);
    for (int line = 0; line < lines_; ++line) svg += draw_line(line);
    for (int group = 0; group < static_cast<int>(map_.groups.size()); ++group) svg += draw_group(group);
    return svg + draw_axis() + draw_legend() + "</svg>\n";
  }

 private:
  int line_top(int line) const { return kTop + line * kCellHeight + line / per_group_ * kGroupGap; }
  double opacity(int value) const { return value == 0 ? 0.0 : 0.05 + 0.95 * value / largest_; }

  std::string draw_line(int line) const {
    const auto index = static_cast<std::size_t>(line);
    const int top = line_top(line);
    std::string svg = text_at(kLeft - 8, top + 11.5, 11, map_.line_names[index], kQuietEnd);
    for (int column = 0; column < columns_; ++column) {
      const int value = map_.cells[index][static_cast<std::size_t>(column)];
      if (value == 0) continue;
      svg +=
          fmt::format("<rect class=\"cell\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill-opacity=\"{:.2f}\"/>\n",
                      kLeft + column * kCellWidth, top, kCellWidth - 1, kCellHeight - 1, opacity(value));
    }
    const int total = std::accumulate(map_.cells[index].begin(), map_.cells[index].end(), 0);
    const int length = static_cast<int>(52.0 * total / largest_total_);
    svg += fmt::format("<rect class=\"total\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"9\" rx=\"1\"/>\n", right_ + 14,
                       top + 3, length);
    svg += text_at(right_ + 20 + length, top + 11.5, 10, std::to_string(total), kQuiet);
    return svg + text_at(right_ + kTotalWidth, top + 11.5, 11, map_.line_labels[index]);
  }

  std::string draw_group(int group) const {
    const int top = line_top(group * per_group_);
    const int height = per_group_ * kCellHeight;
    const int middle = top + height / 2;
    std::string svg = fmt::format("<rect class=\"frame\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n", kLeft - 2,
                                  top - 2, right_ - kLeft + 3, height + 3);
    return svg + text_at(kMargin + 10, middle, 13, map_.groups[static_cast<std::size_t>(group)],
                         fmt::format(" font-weight=\"600\" text-anchor=\"middle\" transform=\"rotate(-90 {} {})\"",
                                     kMargin + 10, middle)
                             .c_str());
  }

  std::string draw_axis() const {
    std::string svg;
    for (int column = 0; column < columns_; ++column) {
      const std::string& tick = map_.x_ticks[static_cast<std::size_t>(column)];
      if (!tick.empty()) svg += text_at(kLeft + column * kCellWidth, bottom_ + 18, 11, tick, kQuietMiddle);
    }
    return svg + text_at((kLeft + right_) / 2.0, bottom_ + 36, 12, map_.x_title, kQuietMiddle);
  }

  std::string draw_legend() const {
    constexpr int kSteps = 6;
    constexpr int kWidth = 26;
    const int top = bottom_ + 56;
    std::string svg = text_at(kLeft, top + 11, 12, map_.cell_meaning, kQuiet);
    const int left = kLeft + static_cast<int>(7.0 * static_cast<double>(map_.cell_meaning.size()));
    for (int step = 0; step < kSteps; ++step) {
      const int value = largest_ * step / (kSteps - 1);
      const int x = left + step * (kWidth + 22);
      svg +=
          fmt::format("<rect class=\"cell\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"14\" fill-opacity=\"{:.2f}\"/>\n",
                      x, top, kWidth, opacity(value));
      svg += fmt::format("<rect class=\"frame\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"14\"/>\n", x, top, kWidth);
      svg += text_at(x + kWidth + 3, top + 11, 11, std::to_string(value), kQuiet);
    }
    return svg;
  }

  const HeatMap& map_;
  const int lines_;
  const int columns_;
  const int per_group_;
  const int right_;
  const int bottom_;
  int largest_ = 1;
  int largest_total_ = 1;
};

}  // namespace

std::string heat_map_svg(const HeatMap& map) { return Drawing(map).draw(); }

}  // namespace ferry::app
