// What an exchange allocates, without making one (ferry/exchange.h).
#include "exchange/checks/valid_options.h"
#include "exchange/sizes/sizes.h"

namespace ferry {

MemoryUse memory_use(const Shape& shape, const ExchangeOptions& options, bool has_remote_ranks) {
  require_valid(shape, options);
  const HeapMap map = make_heap_map(shape, options, 0, has_remote_ranks && !options.skip_a2a);
  MemoryUse use;
  for (int index = 0; index < HeapMap::kRegions; ++index) {
    const auto region = static_cast<HeapMap::Region>(index);
    if (map.region_bytes(region) != 0) use.regions.push_back({HeapMap::region_name(region), map.region_bytes(region)});
  }
  use.total = map.total();
  return use;
}

}  // namespace ferry
