#include "exchange/log/reach_log.h"

#include <fmt/core.h>

#include "base/debug_log.h"

namespace ferry {

void log_reach(const ProcessWorld& world, const std::string& what) {
  debug_log(DebugLevel::info, world.rank(), [&] {
    std::string direct, remote;
    for (int rank = 0; rank < world.size(); ++rank)
      if (rank != world.rank()) (world.is_direct(rank) ? direct : remote) += fmt::format(" {}", rank);
    return fmt::format("{}: loads and stores to ranks{}; puts to ranks{}", what, direct.empty() ? " none" : direct,
                       remote.empty() ? " none" : remote);
  });
}

}  // namespace ferry
