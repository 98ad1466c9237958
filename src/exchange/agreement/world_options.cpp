#include "exchange/agreement/world_options.h"

#include <fmt/core.h>

#include <algorithm>

namespace ferry {

void require_options_of_world(int rank, const ExchangeOptions& options, const WorldCapabilities& can) {
  const auto refuse = [rank](const char* option, const char* why) {
    throw Error(ErrorKind::unsupported, fmt::format("rank {}: {} is on; {}", rank, option, why));
  };
  if (options.late_weights && !can.late_weights)
    refuse("late_weights", "exchanges of this world take weights at dispatch only, so far");
  if (options.returns_weights && !can.returned_weights)
    refuse("returns_weights", "exchanges of this world send no weights home, so far");
  const bool has_dynamic_scales =
      options.dynamic_scales || std::any_of(options.more_formats.begin(), options.more_formats.end(),
                                            [](const DispatchFormat& other) { return other.dynamic_scales; });
  if (has_dynamic_scales && !can.dynamic_scales)
    refuse("dynamic_scales", "exchanges of this world encode with input_scale alone, so far");
}

}  // namespace ferry
