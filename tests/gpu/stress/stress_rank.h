// One rank of the stress program: a segment of rounds on one exchange.
#pragma once

#include <functional>

#include "ferry/world.h"
#include "gpu/stress/stress_kernels.h"

namespace ferry::stress {

struct Config {
  int hidden, experts, top_k;
  Format format;
  bool exact = false, shared = false;
  bool sources = false;  // rows may be by_source, too
  Format result = Format::bf16;
  int alignment = 0;  // 0: the format's
  bool tiled = false;
  bool half = false, wide_ids = false;  // tokens are float16, ids are int64
  float input_scale = 1;                // nvfp4
  int max_tokens = 0;                   // 0: by the number of the segment
  int message_copies = 2;
};

struct Segment {
  Config config;
  int max_tokens;
  unsigned first_round, rounds;
  unsigned seed;
  bool damage;              // changes one byte in one round, which the checks must find
  bool replayed;            // as captured graphs, whose numbers of tokens, forms of calls and blocks stay the same
  unsigned rounds_at_once;  // that are enqueued before the host waits
};

// As in format_named.
const char* name_of(Format format);

// Collective. `device` is this rank's.
Verdict run_segment(World& world, int device, const Segment& segment);

}  // namespace ferry::stress
