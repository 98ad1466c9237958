#include "base/nearest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <numeric>
#include <utility>

namespace ferry {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// Letters added, left out, changed or swapped with their neighbour (optimal string alignment).
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before_last, last(b.size() + 1), now(b.size() + 1);
  std::iota(last.begin(), last.end(), 0u);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = a[i - 1] == b[j - 1];
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        now[j] = std::min(now[j], before_last[j - 2] + 1);
    }
    before_last = std::exchange(last, now);
  }
  return last.back();
}

}  // namespace

std::string nearest(const std::string& word, std::span<const std::string> known) {
  constexpr std::size_t kLeastOfBeginning = 3;
  const std::string wanted = lower(word);
  // By its letters it would be cpu.
  if (wanted == "gpu" && std::ranges::find(known, "cuda") != known.end()) return "cuda";
  std::string best;
  // More changes than this are another word: of four letters or fewer, two. The dashes of an option are no letters.
  const std::size_t letters = wanted.size() - std::min(wanted.find_first_not_of('-'), wanted.size());
  std::size_t least = letters <= 4 ? 1 : 1 + letters / 4;
  for (const std::string& each : known) {
    const std::string candidate = lower(each);
    if (candidate == wanted) return each;
    const bool begins = wanted.size() >= kLeastOfBeginning && candidate.starts_with(wanted);
    const std::size_t changes = begins ? 1 : distance(wanted, candidate);
    if (changes < least || (changes == least && best.empty())) {
      best = each;
      least = changes;
    }
  }
  return best;
}

std::string did_you_mean(const std::string& word, std::span<const std::string> known) {
  const std::string meant = nearest(word, known);
  return meant.empty() ? "" : fmt::format("; did you mean {}?", meant);
}

}  // namespace ferry
