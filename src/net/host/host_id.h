// Which host a process runs on. Containers of one host count as one: their memory can be shared.
#pragma once

#include <span>

namespace ferry::net {

// Plain data, for all_gather.
struct HostId {
  char name[64];  // for people; two hosts may have the same
  char boot[40];  // of the running kernel: no two hosts have the same
};
HostId this_host();

// `all`: by rank. Throws Error(unsupported) at rank `rank` that names the first rank on another host than rank 0.
// `must_be`: what the world asks for, as "this world's GPUs must be of one host".
void require_one_host(int rank, std::span<const HostId> all, const char* must_be);

}  // namespace ferry::net
