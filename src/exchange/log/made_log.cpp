#include "exchange/log/made_log.h"

#include <fmt/core.h>

#include <string>

#include "base/debug_log.h"
#include "exchange/sizes/sizes.h"

namespace ferry {

void log_made(const World& world, const Shape& shape, const ExchangeOptions& options, const RowLayout& layout,
              const HeapMap& map) {
  debug_log(DebugLevel::info, world.rank(), [&] {
    const int count = layout.scales_per_row;
    const std::string scales = count == 0 ? "" : fmt::format(" + {} scale{}", count, count == 1 ? "" : "s");
    std::string others;
    for (const DispatchFormat& other : options.more_formats) others += std::string(" or ") + other.format.name();
    return fmt::format(
        "exchange on {} ({} ranks{}): {}, format {}{}, {}; {} bytes of symmetric memory, rows {} of {} bytes{}, "
        "{} groups at multiples of {}; deadline {} ms",
        world.backend(), world.size(), map.has_remote_ranks() ? ", some by puts" : "", to_string(shape),
        options.format.name(), others, to_string(options.reduction), map.total(), layout.min_row_capacity,
        layout.payload_row_bytes, scales, layout.groups, layout.alignment, options.deadline.count());
  });
  if (!debug_logs(DebugLevel::trace)) return;
  for (const MemoryUse::Region& region : memory_use(shape, options, map.has_remote_ranks()).regions)
    debug_log(DebugLevel::trace, world.rank(),
              [&] { return fmt::format("  {}: {} bytes", region.name, region.bytes); });
}

}  // namespace ferry
