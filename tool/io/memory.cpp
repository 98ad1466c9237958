// Reads the limits that Linux keeps in /proc and in the cgroup.
#include "tool/io/memory.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>

#include "ferry/error.h"
#include "tool/text/human.h"

namespace ferry::app {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

// The number after `key` in a file of "key number" lines; `key` empty: the first number.
std::optional<std::uint64_t> number_in(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (key.empty()) return file >> value ? std::optional(value) : std::nullopt;
  for (std::string word; file >> word;)
    if (word == key) return file >> value ? std::optional(value) : std::nullopt;
  return std::nullopt;
}

std::uint64_t left(std::uint64_t limit, std::uint64_t used) { return limit > used ? limit - used : 0; }

std::uint64_t left_in_cgroup() {
  const std::string folder = "/sys/fs/cgroup/";
  const auto limit = number_in(folder + "memory.max", "");  // "max" is no number: no limit
  const auto used = number_in(folder + "memory.current", "");
  if (!limit || !used) return kUnlimited;
  // File pages count as used but are given back when memory runs short.
  const std::uint64_t reclaimable = number_in(folder + "memory.stat", "file").value_or(0);
  return left(*limit, left(*used, reclaimable));
}

std::uint64_t left_of_limit(decltype(RLIMIT_AS) resource, const char* used_key) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  return left(limit.rlim_cur, number_in("/proc/self/status", used_key).value_or(0) * 1024);
}

}  // namespace

std::uint64_t total_memory() { return number_in("/proc/meminfo", "MemTotal:").value_or(0) * 1024; }

std::uint64_t memory_left() {
  const auto system = number_in("/proc/meminfo", "MemAvailable:");
  return std::min({system ? *system * 1024 : kUnlimited, left_in_cgroup(), left_of_limit(RLIMIT_AS, "VmSize:"),
                   left_of_limit(RLIMIT_DATA, "VmData:")});
}

void require_memory(const std::vector<MemoryNeed>& needs, std::uint64_t available) {
  std::uint64_t sum = 0;
  for (const MemoryNeed& need : needs)
    if (__builtin_add_overflow(sum, need.bytes, &sum)) sum = kUnlimited;
  if (sum <= available) return;
  std::vector<MemoryNeed> largest = needs;
  std::sort(largest.begin(), largest.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  std::string parts;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, largest.size()); ++i)
    parts += fmt::format("{}{} {}", i == 0 ? "" : ", ", largest[i].what, human_bytes(largest[i].bytes));
  throw Error(ErrorKind::system, fmt::format("this needs {} of memory and {} are available; the largest parts are: {}",
                                             human_bytes(sum), human_bytes(available), parts));
}

Pages::Pages(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data_ == MAP_FAILED) {
    data_ = nullptr;
    throw Error(ErrorKind::system,
                fmt::format("{} of memory cannot be had: {}", human_bytes(bytes), std::strerror(errno)));
  }
}

Pages::~Pages() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace ferry::app
