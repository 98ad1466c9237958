#include "base/byte_size.h"

#include <cctype>
#include <charconv>
#include <cmath>

namespace ferry {

std::size_t bytes_of_size(std::string_view text) {
  constexpr double kTooMany = 9.2e18;
  double number = 0;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto parsed = std::from_chars(begin, end, number, std::chars_format::general);
  if (parsed.ec != std::errc() || !(number >= 0)) return 0;  // also no number, as "nan" has it
  unsigned shift = 0;
  if (parsed.ptr != end) {
    const std::size_t unit =
        std::string_view("KMGT").find(static_cast<char>(std::toupper(static_cast<unsigned char>(*parsed.ptr))));
    if (unit == std::string_view::npos) return 0;  // what follows the unit, as in 2GB, is not looked at
    shift = 10 * (static_cast<unsigned>(unit) + 1);
  }
  const double bytes = std::ldexp(number, static_cast<int>(shift));
  return bytes < kTooMany ? static_cast<std::size_t>(bytes) : 0;
}

}  // namespace ferry
