// The words of the demo: those of its own text, or of a file.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ferry::app {

inline constexpr std::size_t kFewestWords = 64;
inline constexpr std::size_t kMostWords = 20000;  // more are cut: the check alone would take minutes

// The text of a file. Throws Error(io) with the reason where it cannot be read, and Error(invalid_argument) where it
// holds a zero byte, which no text does, or fewer words than kFewestWords.
std::string read_text(const std::string& path);

struct DemoWords {
  std::vector<std::string> words;  // kMostWords at most, from the beginning of the text
  std::size_t in_text = 0;

  explicit DemoWords(const std::string& text);
  bool is_cut() const { return words.size() < in_text; }
};

}  // namespace ferry::app
