// Combinations of what callers can choose: how tokens go out, how rows lie, what comes back, which calls there are. A
// list in which each two choices that go together meet at least once; and the product of the main ones.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {

// Which calls there are: a dispatch and its combine; a dispatch, its replay with other tokens, and the replay's
// combine; a dispatch, a whole round, and the first dispatch's combine.
enum class Calls { round, replay, late_combine };

struct Combination {
  ScenarioSettings settings;
  Calls calls = Calls::round;
  Form form = Form::split;
};

// What can be chosen, in order: a choice may depend on those before it. The first kMainAxes span the product.
struct Axis {
  std::vector<std::string> names;            // of its choices
  bool (*set)(int choice, Combination& to);  // false: it does not go with those of the axes before
};
inline constexpr std::size_t kAxes = 14;
inline constexpr std::size_t kMainAxes = 8;
const std::array<Axis, kAxes>& axes();

// One choice of each axis, by its number.
using Choices = std::array<int, kAxes>;

// Two choices that no exchange or call takes together.
struct Pair {
  std::size_t first_axis, second_axis;
  int first, second;
};
std::string to_string(const Pair& pair);

// nullopt: some of the choices do not go together.
std::optional<Combination> combination_of(const Choices& choices);

// Each pair of choices is in one of them, or in `impossible`, where it is given.
std::vector<Choices> pairwise_choices(std::vector<Pair>* impossible = nullptr);

// All choices of the main axes with this format; those of the others are drawn.
std::vector<Choices> product_choices(int format);

// Makes an exchange on every rank and runs the calls on it. Skipped where the world cannot.
void run_combination(const Target& target, const Combination& combination);

}  // namespace ferry::conformance
