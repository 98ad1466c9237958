// A case on a target where every round takes long: of the rounds that it makes, those that have each of their settings
// at least once. Its other rounds pair the same settings otherwise.
#pragma once

#include <string>
#include <vector>

#include "conformance/target/case.h"

namespace ferry::conformance {

// Which of the rounds that are described so. A word is a setting, but for the seed, and all before the first
// "name=value" is one. So is a word that is missing where others have it, unless it names its value. Rounds with one
// description differ in something else. A description without values is of no other round, so each of these is chosen.
// Each setting is in a round that is chosen; of rounds with as many new ones that is taken which pairs more anew.
std::vector<bool> covering_rounds(const std::vector<std::string>& descriptions);

// What the case says of its rounds, in order, without running them. It ends where the case needs what a round brings.
std::vector<std::string> rounds_of(const Case& each, const Target& target);

// Runs those that are chosen, and what rounds_of did not see.
void run_few_rounds(const Case& each, const Target& target);

}  // namespace ferry::conformance
