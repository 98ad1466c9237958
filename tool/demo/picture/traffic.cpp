// Bars on the left, the matrix of ranks on the right.
#include "tool/demo/picture/traffic.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "tool/text/human.h"

namespace ferry::app {
namespace {

constexpr int kBarLeft = 24;
constexpr int kBarWidth = 400;  // of all choices
constexpr int kBarHeight = 18;
constexpr int kMatrixLeft = 590;  // of its cells
constexpr int kMatrixWidth = 440;
constexpr int kMatrixHeight = 220;
constexpr int kMostWithText = 8;  // ranks whose cells have room for numbers

std::string count_text(std::uint64_t count) { return human_count(static_cast<std::int64_t>(count)); }

struct Bar {
  std::uint64_t count;
  std::string meaning;
};

Drawn draw_bars(const ChoiceTraffic& traffic, int top) {
  const auto choices = static_cast<std::uint64_t>(traffic.choices);
  const Bar bars[] = {
      {choices, "choices: a token and an expert that it goes to"},
      {traffic.all(), "messages: a token goes once to a rank, for all its experts there"},
      {traffic.between(), "of them to other ranks: the rest stay on the rank of their token"},
  };
  Drawn drawn;
  drawn.shapes =
      svg_text(kBarLeft, top + 14, "How choices become messages", {.size = 14, .colour = Colour::ink, .bold = true});
  int y = top + 32;
  for (const Bar& bar : bars) {
    const auto width = static_cast<int>(kBarWidth * bar.count / std::max<std::uint64_t>(choices, 1));
    drawn.shapes +=
        svg_text(kBarLeft, y + 12, count_text(bar.count), {.size = 13, .colour = Colour::ink, .bold = true});
    drawn.shapes += svg_text(kBarLeft + 56, y + 12, bar.meaning, {.size = 12});
    drawn.shapes += svg_box({kBarLeft, y + 20, width, kBarHeight}, &bar == bars + 2 ? "total" : "cell");
    y += 62;
  }
  drawn.bottom = y;
  drawn.right = kBarLeft + kBarWidth;
  return drawn;
}

class MatrixDrawing {
 public:
  MatrixDrawing(const ChoiceTraffic& traffic, int top)
      : traffic_(traffic),
        top_(top),
        height_(std::min(kMatrixHeight / traffic.ranks, 44)),
        width_(has_text() ? std::min(kMatrixWidth / traffic.ranks, 100) : height_),
        gap_(has_text() ? 2 : 1) {
    for (int source = 0; source < traffic.ranks; ++source)
      for (int to = 0; to < traffic.ranks; ++to)
        if (source != to) largest_ = std::max(largest_, traffic.from_to(source, to));
  }

  Drawn draw() {
    const std::string title =
        has_text() ? fmt::format("Messages from rank to rank, and their bytes as {}", traffic_.format)
                   : fmt::format("Messages from rank (line) to rank (column): {} at most", count_text(largest_));
    shapes_ += svg_text(kMatrixLeft, top_ + 14, title, {.size = 14, .colour = Colour::ink, .bold = true});
    const int cells = top_ + 46;
    for (int rank = 0; rank < traffic_.ranks; ++rank) draw_names(rank, cells);
    for (int source = 0; source < traffic_.ranks; ++source)
      for (int to = 0; to < traffic_.ranks; ++to)
        draw_cell(source, to, {kMatrixLeft + to * width_, cells + source * height_, width_ - gap_, height_ - gap_});
    if (!has_text())
      shapes_ +=
          svg_box({kMatrixLeft - 1, cells - 1, traffic_.ranks * width_ + 1, traffic_.ranks * height_ + 1}, "frame");
    return {shapes_, kMatrixLeft + traffic_.ranks * width_, cells + traffic_.ranks * height_};
  }

 private:
  bool has_text() const { return traffic_.ranks <= kMostWithText; }

  void draw_names(int rank, int cells) {
    if (!has_text() && rank % 4 != 0) return;
    const std::string number = std::to_string(rank);
    shapes_ += svg_text(kMatrixLeft + rank * width_ + (width_ - gap_) / 2.0, cells - 7,
                        has_text() ? "to " + number : number, {.anchor = Anchor::middle});
    shapes_ += svg_text(kMatrixLeft - 8, cells + rank * height_ + height_ / 2.0 + 3,
                        has_text() ? "from " + number : number, {.anchor = Anchor::end});
  }

  // Numbers stand on the fill, so it stays light. What a rank keeps has no fill.
  void draw_cell(int source, int to, const Box& box) {
    const std::uint64_t messages = traffic_.from_to(source, to);
    const double opacity = (has_text() ? 0.6 : 1) * static_cast<double>(messages) / static_cast<double>(largest_);
    if (source != to && messages != 0) shapes_ += svg_box(box, "cell", opacity);
    if (!has_text()) return;
    shapes_ += svg_box(box, "frame");
    const double x = box.x + box.width / 2.0, middle = box.y + box.height / 2.0;
    const TextStyle large{.size = 12, .colour = source == to ? Colour::quiet : Colour::ink, .anchor = Anchor::middle};
    const TextStyle small{.size = 10, .colour = large.colour, .anchor = Anchor::middle};
    shapes_ += svg_text(x, middle - 1, count_text(messages), large);
    shapes_ += svg_text(x, middle + 11, source == to ? "stay" : human_bytes(messages * traffic_.message_bytes), small);
  }

  const ChoiceTraffic& traffic_;
  const int top_;
  const int height_;
  const int width_;
  const int gap_;
  std::uint64_t largest_ = 1;
  std::string shapes_;
};

}  // namespace

std::uint64_t ChoiceTraffic::all() const { return std::accumulate(messages.begin(), messages.end(), std::uint64_t{0}); }

std::uint64_t ChoiceTraffic::between() const {
  std::uint64_t own = 0;
  for (int rank = 0; rank < ranks; ++rank) own += from_to(rank, rank);
  return all() - own;
}

Drawn draw_traffic(const ChoiceTraffic& traffic, int top) {
  const Drawn bars = draw_bars(traffic, top);
  const Drawn matrix = MatrixDrawing(traffic, top).draw();
  return {bars.shapes + matrix.shapes, std::max(bars.right, matrix.right), std::max(bars.bottom, matrix.bottom)};
}

}  // namespace ferry::app
