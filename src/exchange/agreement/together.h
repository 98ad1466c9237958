// Work that every rank of a world does for itself, and that fails on all ranks or on none.
#pragma once

#include <chrono>
#include <functional>

#include "ferry/world.h"

namespace ferry {

// Runs `work` on every rank that the mask leaves in. Collective. If it throws on some, all ranks throw an Error with
// the words of the first of them, and none waits for it. A PeerMissing goes on at once: every rank finds that by
// itself.
void together(World& world, const std::function<void()>& work, const RankMask& mask,
              std::chrono::milliseconds deadline);

}  // namespace ferry
