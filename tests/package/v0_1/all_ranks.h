// all_ranks_right: what the mains of these examples share.
#pragma once

#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <vector>

#include "ferry/ferry.h"

// Runs `body` on every rank. The exit code of the example: 0 where it returned true on all of them.
inline int all_ranks_right(int ranks, const std::function<bool(ferry::World&)>& body) {
  std::vector<int> right(static_cast<std::size_t>(ranks));
  try {
    ferry::run_ranks(ranks, [&](ferry::World& world) { right[static_cast<std::size_t>(world.rank())] = body(world); });
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  const auto num_right = std::count(right.begin(), right.end(), 1);
  std::printf("%d of %d ranks got what they should\n", static_cast<int>(num_right), ranks);
  return num_right == ranks ? 0 : 1;
}
