// What the cases over exchanges that share one memory have alike.
#pragma once

#include <functional>
#include <string>

#include "conformance/cases/cases.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {

inline constexpr int kSharingRanks = 3;
// The words of the first lie where the others have slots, and the other way round.
inline constexpr Shape kLargeMemory{.ranks = kSharingRanks, .experts = 10, .top_k = 4, .max_tokens = 16, .hidden = 512};
inline constexpr Shape kSmallMemory{.ranks = kSharingRanks, .experts = 7, .top_k = 3, .max_tokens = 9, .hidden = 64};
inline constexpr Shape kMiddleMemory{
    .ranks = kSharingRanks, .experts = 10, .top_k = 4, .max_tokens = 16, .hidden = 256};

inline Scenario sharing_scenario(const Shape& shape, const char* format, Reduction reduction, std::uint64_t seed,
                                 const char* routing = "ragged", bool skips = false) {
  ScenarioSettings settings;
  settings.shape = shape;
  settings.options = options_for(format, reduction);
  settings.options.skip_a2a = skips;
  settings.seed = seed;
  settings.routing = routing;
  return make_scenario(settings);
}

inline Exchange make_alone(World& world, const Scenario& scenario) {
  return {world, scenario.settings.shape, scenario.settings.options};
}
inline Exchange make_in(Exchange& memory_of, const Scenario& scenario) {
  return {memory_of, scenario.settings.shape, scenario.settings.options};
}

// Runs `body` on all ranks. Skipped where exchanges do not share memory: all ranks of a world agree on that.
inline void with_sharing(const Target& target, int ranks, const std::string& what,
                         const std::function<void(World&)>& body) {
  on_ranks(target, ranks, what, [&](World& world) {
    if (!world.capabilities().shared_memory) throw Skipped("the exchanges of this world do not share memory");
    body(world);
  });
}

}  // namespace ferry::conformance
