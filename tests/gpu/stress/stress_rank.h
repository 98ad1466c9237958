// One rank of the stress program: a segment of rounds on one exchange.
#pragma once

#include <functional>

#include "ferry/world.h"
#include "gpu/stress/stress_kernels.h"

namespace ferry::stress {

struct Config {
  int hidden, experts, top_k;
  Format format;
  bool exact, shared;
  int alignment;  // 0: the format's
};

struct Segment {
  Config config;
  int max_tokens;
  unsigned first_round, rounds;
  unsigned seed;
  bool damage;  // changes one byte in one round, which the checks must find
};

// Collective. Nothing waits on the host before the end of the segment.
Verdict run_segment(World& world, const Segment& segment);

}  // namespace ferry::stress
