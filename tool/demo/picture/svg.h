// Pieces of an SVG whose colours follow the viewer's light or dark scheme.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

namespace ferry::app {

// Something drawn from its top downwards. Coordinates are those of the document.
struct Drawn {
  std::string shapes;
  int right = 0;
  int bottom = 0;
};

enum class Colour { ink, quiet };
enum class Anchor { start, middle, end };
struct TextStyle {
  int size = 11;
  Colour colour = Colour::quiet;
  Anchor anchor = Anchor::start;
  bool bold = false;
  bool upright = false;  // turned by a quarter, to be read from below
};

// `text` may be anything: what XML or UTF-8 does not allow is replaced.
std::string svg_text(double x, double y, const std::string& text, const TextStyle& style = {});

struct Box {
  int x, y, width, height;
};
// `kind`: cell, total, frame or card, each with its colour. `opacity` is of its fill.
std::string svg_box(const Box& box, const char* kind, double opacity = 1.0);

std::string svg_document(const std::string& title, int width, int height, const std::string& shapes);

// The smallest number, at least 1, that is a power of ten times one of `leading` and no less than `least`.
std::int64_t round_number(double least, std::initializer_list<int> leading = {1, 2, 5});

}  // namespace ferry::app
