// Numbers of a benchmark's command line. A measurement of what nobody asked for would look like any other record, so
// what is no number, or out of its limits, is refused.
#pragma once

#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>

#include "ferry/error.h"

namespace ferry::app {

inline constexpr int kAnyNumber = std::numeric_limits<int>::max();

// All of `text` as a number from `least` to `most`, a multiple of `step`. Throws Error(invalid_argument) with `name`.
inline int whole_number(const std::string& name, std::string_view text, int least, int most = kAnyNumber,
                        int step = 1) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= least && value <= most && value % step == 0)
    return value;
  const std::string limits =
      most == kAnyNumber ? std::to_string(least) + " or more" : std::to_string(least) + " to " + std::to_string(most);
  throw Error(ErrorKind::invalid_argument,
              name + " is \"" + std::string(text) + "\"; it must be a whole number, " + limits +
                  (step == 1 ? std::string() : ", and a multiple of " + std::to_string(step)));
}

// All of `text` as a finite number. Throws as above.
inline double finite_number(const std::string& name, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && std::isfinite(value)) return value;
  throw Error(ErrorKind::invalid_argument, name + " is \"" + std::string(text) + "\"; it must be a number");
}

// The text before the first `mark` and the text behind it, which is empty where there is no mark.
struct TwoTexts {
  std::string_view before, behind;
  bool has_mark = false;
};
inline TwoTexts split_at(std::string_view text, char mark) {
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos) return {text, {}, false};
  return {text.substr(0, at), text.substr(at + 1), true};
}

}  // namespace ferry::app
