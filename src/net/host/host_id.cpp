#include "net/host/host_id.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>

#include "ferry/error.h"

namespace ferry::net {

HostId this_host() {
  HostId host{};
  gethostname(host.name, sizeof host.name - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::strncpy(host.boot, boot.c_str(), sizeof host.boot - 1);
  return host;
}

void require_one_host(int rank, std::span<const HostId> all, const char* must_be) {
  for (std::size_t peer = 1; peer < all.size(); ++peer)
    if (std::strcmp(all[peer].boot, all[0].boot) != 0)
      throw Error(ErrorKind::unsupported, fmt::format("rank {}: rank 0 is on host {} and rank {} on host {}; {}", rank,
                                                      all[0].name, peer, all[peer].name, must_be));
}

}  // namespace ferry::net
