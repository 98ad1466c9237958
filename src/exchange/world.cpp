#include "ferry/world.h"

#include "base/run_on_threads.h"

namespace ferry {

void World::barrier(const RankMask& mask, std::chrono::milliseconds deadline) {
  const std::byte token{1};
  std::vector<std::byte> all(static_cast<std::size_t>(size()));
  all_gather(std::span(&token, 1), all, mask, deadline);
}

void run_worlds(std::span<const std::unique_ptr<World>> worlds, const std::function<void(World&)>& body) {
  run_on_threads(worlds.size(), [&](std::size_t rank) { body(*worlds[rank]); });
}

}  // namespace ferry
