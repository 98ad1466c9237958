#include "net/bootstrap_address.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cstring>

#include "ferry/error.h"
#include "net/host/host_id.h"

namespace ferry::net {
namespace {

constexpr std::uint64_t kMagic = 0x676e697465656d46ULL;
constexpr std::size_t kMostHosts = 8;

// What each rank gives to the caller's all_gather. Rank 0's says where it listens, or why it does not.
struct Entry {
  std::uint64_t magic = 0;
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::uint64_t name = 0;  // of the job: no two have the same
  std::uint32_t port = 0;
  std::uint32_t unused = 0;
  HostId host{};
  char hosts[kMostHosts][48] = {};
  char failed[256] = {};
};

template <std::size_t kSize>
void set_text(char (&to)[kSize], const std::string& text) {
  std::strncpy(to, text.c_str(), kSize - 1);
}
template <std::size_t kSize>
std::string text_of(const char (&from)[kSize]) {
  return {from, strnlen(from, kSize)};
}

// Empty for an address that other hosts cannot use: of a loopback, or of one link only.
std::string host_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    if (!IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
  }
  return is_loopback(text) ? "" : text;
}

// This host's addresses, at most kMostHosts of them.
void list_hosts(Entry& entry) {
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return;
  std::size_t count = 0;
  for (const ifaddrs* each = interfaces; each != nullptr && count < kMostHosts; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    const std::string host = host_of(each->ifa_addr);
    if (!host.empty()) set_text(entry.hosts[count++], host);
  }
  freeifaddrs(interfaces);
}

// All ranks take part in the gathering, so an error of rank 0 travels in its entry.
Entry entry_of(const ProcessPlace& place, Job& job) {
  Entry entry;
  entry.magic = kMagic;
  entry.rank = place.rank;
  entry.size = place.size;
  entry.host = this_host();
  if (place.rank != 0) return entry;
  entry.name = random_number();
  list_hosts(entry);
  try {
    job.listener = std::make_shared<Listener>(listen_on({"", 0}));
    entry.port = job.listener->port;
  } catch (const Error& error) {
    set_text(entry.failed, error.what());
  }
  return entry;
}

std::vector<Entry> gather(const ProcessPlace& place, const Entry& mine) {
  const std::vector<std::byte> all = place.all_gather(std::as_bytes(std::span(&mine, 1)));
  std::vector<Entry> entries(static_cast<std::size_t>(place.size));
  if (all.size() != entries.size() * sizeof(Entry))
    throw Error(ErrorKind::invalid_argument, fmt::format("rank {}: all_gather gave {} bytes; {} ranks give {} each",
                                                         place.rank, all.size(), place.size, sizeof(Entry)));
  std::memcpy(entries.data(), all.data(), all.size());
  for (std::size_t rank = 0; rank < entries.size(); ++rank) {
    const Entry& each = entries[rank];
    if (each.magic != kMagic || each.rank != static_cast<int>(rank) || each.size != place.size)
      throw Error(
          ErrorKind::invalid_argument,
          fmt::format("rank {}: entry {} of all_gather says rank {} of {}; this world has {} ranks, and entries "
                      "must come in rank order",
                      place.rank, rank, each.rank, each.size, place.size));
  }
  return entries;
}

Job gathered_job(const ProcessPlace& place) {
  Job job;
  job.rank = place.rank;
  job.size = place.size;
  job.stop = place.stop;
  const Entry mine = entry_of(place, job);
  const std::vector<Entry> all = gather(place, mine);
  const Entry& first = all.front();
  if (const std::string why = text_of(first.failed); !why.empty())
    throw Error(ErrorKind::system, fmt::format("rank {}: rank 0 {}", place.rank, why));
  job.name = fmt::format("{:016x}", first.name);
  const auto port = static_cast<std::uint16_t>(first.port);
  if (std::strcmp(first.host.boot, mine.host.boot) == 0) job.other_addresses.push_back({"127.0.0.1", port});
  for (const auto& host : first.hosts)
    if (host[0] != '\0') job.other_addresses.push_back({text_of(host), port});
  if (job.other_addresses.empty())
    throw Error(ErrorKind::system, fmt::format("rank {}: rank 0 is on another host and has no network", place.rank));
  job.address = job.other_addresses.front();
  job.other_addresses.erase(job.other_addresses.begin());
  return job;
}

}  // namespace

Job job_of(const ProcessPlace& place, int most_ranks) {
  if (place.size > most_ranks)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("rank {}: {} ranks; this world has 1 to {}", place.rank, place.size, most_ranks));
  if (place.all_gather) return gathered_job(place);
  Job job;
  if (place.size > 1 || !place.address.empty()) job.address = parse_address(place.address);  // of one rank it is unused
  job.rank = place.rank;
  job.size = place.size;
  job.name = place.job;
  job.stop = place.stop;
  return job;
}

}  // namespace ferry::net
