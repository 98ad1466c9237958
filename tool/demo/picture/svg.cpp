// One hue whose opacity is the value, so that empty cells take the background's colour, light or dark.
#include "tool/demo/picture/svg.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

namespace ferry::app {
namespace {

const char* const kStyle = R"(<style>
text{font-family:"Helvetica Neue",Arial,"DejaVu Sans",sans-serif;fill:#1f2933}
.card{fill:#fcfcfa;stroke:#d9dcd6}.quiet{fill:#5f6b76}.cell{fill:#0b6e8f}.total{fill:#c2571a}.frame{fill:none;stroke:#c9cfcc}
@media (prefers-color-scheme:dark){text{fill:#e4e8ea}.card{fill:#12181d;stroke:#303a42}.quiet{fill:#9aa6af}.cell{fill:#4cc3e8}.total{fill:#f0924e}.frame{stroke:#3a454d}}
</style>
)";

unsigned byte_at(std::string_view text, std::size_t index) {
  return index < text.size() ? static_cast<unsigned char>(text[index]) : 0u;
}

// Bytes of the UTF-8 character at `index`; 0: there is none.
std::size_t character_bytes(std::string_view text, std::size_t index) {
  const unsigned first = byte_at(text, index);
  if (first < 0x80) return 1;
  const std::size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return 0;
  for (std::size_t i = 1; i < bytes; ++i)
    if ((byte_at(text, index + i) & 0xC0u) != 0x80u) return 0;
  const unsigned second = byte_at(text, index + 1);  // longer than needed, a surrogate, or beyond the last
  const bool is_wrong = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
                        (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F);
  return is_wrong ? 0 : bytes;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (std::size_t index = 0; index < text.size();) {
    const std::size_t bytes = character_bytes(text, index);
    const char c = text[index];
    if (bytes == 0 || (static_cast<unsigned char>(c) < 0x20 && c != '\t'))
      out += "\xEF\xBF\xBD";  // U+FFFD
    else if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += text.substr(index, bytes);
    index += std::max<std::size_t>(bytes, 1);
  }
  return out;
}

}  // namespace

std::string svg_text(double x, double y, const std::string& text, const TextStyle& style) {
  if (text.empty()) return {};
  constexpr const char* kAnchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\"{}{}{}{}>{}</text>\n", x, y, style.size,
                     style.colour == Colour::quiet ? " class=\"quiet\"" : "", style.bold ? " font-weight=\"600\"" : "",
                     kAnchors[static_cast<int>(style.anchor)],
                     style.upright ? fmt::format(" transform=\"rotate(-90 {:.1f} {:.1f})\"", x, y) : "", escaped(text));
}

std::string svg_box(const Box& box, const char* kind, double opacity) {
  return fmt::format("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"{}/>\n", kind, box.x, box.y,
                     box.width, box.height, opacity < 1 ? fmt::format(" fill-opacity=\"{:.2f}\"", opacity) : "");
}

std::string svg_document(const std::string& title, int width, int height, const std::string& shapes) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\">\n"
      "<title>{2}</title>\n{3}"
      "<rect class=\"card\" x=\"0.5\" y=\"0.5\" width=\"{4}\" height=\"{5}\" rx=\"10\"/>\n{6}</svg>\n",
      width, height, escaped(title), kStyle, width - 1, height - 1, shapes);
}

std::int64_t round_number(double least, std::initializer_list<int> leading) {
  for (std::int64_t power = 1;; power *= 10)
    for (const int digit : leading)
      if (static_cast<double>(digit * power) >= least) return digit * power;
}

}  // namespace ferry::app
