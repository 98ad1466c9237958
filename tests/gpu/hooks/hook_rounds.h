// Rounds with hooks, whatever the world: which hooks, how they are called, and the oracle's bytes.
#pragma once

#include <limits>

#include "conformance/rounds/scenario.h"
#include "gpu/hooks/hooked_calls.h"

namespace ferry::test {

struct HookCase {
  const char* name;
  AnyFormat format;
  MakeHooked make;
  Reduction reduction = Reduction::by_rank;
  bool weight = false;    // has router_weight
  bool epilogue = false;  // has epilogue
  bool shared = false;
  bool masked = false;  // without rank 1, where there are more than two
  int tokens = 37;
  const char* routing = "ragged";
  int late_from = std::numeric_limits<int>::max();  // token; HookValues::late_from
  int hidden = 384;
  RowOrder order = RowOrder::by_expert;
  bool handles = false;  // rounds that leave a handle, replay it and combine by it, a captured one among them
};

// The same on every rank.
conformance::Scenario make_hook_scenario(const HookCase& each, int ranks);

// One rank's rounds, in one call each and split; throws where a byte differs. `device` is its GPU.
void run_hook_rounds(World& world, int device, const HookCase& each, const conformance::Scenario& scenario);

}  // namespace ferry::test
