// Combinations of options, a case for each format: each two choices that go together meet in one of them; or, where the
// target wants that, the product of the main choices.
#include "conformance/cases/cases.h"
#include "conformance/rounds/combinations.h"

namespace ferry::conformance {
namespace {

bool can_run(const Target& target, const Combination& c) {
  return target.can_lose_ranks || c.settings.options.mask.empty();
}

std::vector<Choices> choices_with(int format, bool all) {
  if (all) return product_choices(format);
  static const std::vector<Choices> pairs = pairwise_choices();
  std::vector<Choices> chosen;
  for (const Choices& each : pairs)
    if (each[0] == format) chosen.push_back(each);
  return chosen;
}

void run_format(const Target& target, int format) {
  bool is_any_possible = false;
  for (const Choices& choices : choices_with(format, target.all_combinations)) {
    const std::optional<Combination> combination = combination_of(choices);
    if (!combination || !can_run(target, *combination)) continue;
    is_any_possible = true;
    run_combination(target, *combination);
  }
  if (!is_any_possible) throw Skipped("no combination is possible here");
}

}  // namespace

void add_combination_cases(Cases& cases) {
  const auto& formats = axes()[0].names;
  for (std::size_t format = 0; format < formats.size(); ++format)
    cases.push_back({"combinations/" + formats[format], "options that meet, with tokens in " + formats[format],
                     format == 0, [format](const Target& target) { run_format(target, static_cast<int>(format)); }});
}

}  // namespace ferry::conformance
