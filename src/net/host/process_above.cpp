#include "net/host/process_above.h"

#include <fmt/core.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

namespace ferry::net {
namespace {

// From /proc/PID/stat: "PID (name) state parent ...", and the start time as field 22. PIDs are reused, start times are
// not.
struct Status {
  std::string name;
  long parent = 0;
  std::string started;
};
constexpr int kBetweenParentAndStart = 17;

std::optional<Status> status_of(long process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::size_t open = text.find('(');
  const std::size_t close = text.rfind(')');  // a name may have one, too
  if (open == std::string::npos || close == std::string::npos) return std::nullopt;
  Status status;
  status.name = text.substr(open + 1, close - open - 1);
  std::istringstream fields(text.substr(close + 1));
  std::string skipped;
  fields >> skipped >> status.parent;
  for (int field = 0; field < kBetweenParentAndStart; ++field) fields >> skipped;
  fields >> status.started;
  return fields ? std::optional(status) : std::nullopt;
}

}  // namespace

std::string process_above(const char* name) {
  for (long process = getppid(); process > 0;) {
    const std::optional<Status> status = status_of(process);
    if (!status) break;
    if (status->name == name) return fmt::format("{}-{}", process, status->started);
    process = status->parent;
  }
  return "";
}

}  // namespace ferry::net
