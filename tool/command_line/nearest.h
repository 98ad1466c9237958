// Suggestions: which known word somebody may have meant.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace ferry::app {

// The known word that is nearest to `word`: the same but for case, or one that begins with it, or one that few changes
// of a letter lead to. Empty where none is near.
std::string nearest(const std::string& word, std::span<const std::string> known);

// "; did you mean X?", or nothing where none is near.
std::string did_you_mean(const std::string& word, std::span<const std::string> known);

// "--format FP8: must be one of bf16, mxfp8; did you mean mxfp8?"
std::string not_one_of(const std::string& option, const std::string& value, std::span<const std::string> known);

}  // namespace ferry::app
