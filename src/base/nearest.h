// Suggestions: which known word somebody may have meant.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace ferry {

// The known word that is nearest to `word`: the same but for case, or one that begins with it, or one that few changes
// of a letter lead to. Empty where none is near.
std::string nearest(const std::string& word, std::span<const std::string> known);

// "; did you mean X?", or nothing where none is near.
std::string did_you_mean(const std::string& word, std::span<const std::string> known);

}  // namespace ferry
