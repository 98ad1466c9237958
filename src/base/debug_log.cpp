#include "base/debug_log.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string>
#include <string_view>

namespace ferry {
namespace {

// "2026-01-31T09:05:07.000042Z": lines of several processes and hosts can be put in one order.
std::string time_of(std::chrono::system_clock::time_point when) {
  const auto since = std::chrono::duration_cast<std::chrono::microseconds>(when.time_since_epoch()).count();
  constexpr std::int64_t kSecond = 1'000'000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", fmt::gmtime(static_cast<std::time_t>(since / kSecond)),
                     since % kSecond);
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown host";
  return name.data();
}

const char* name_of(DebugLevel level) {
  constexpr std::array kNames = {"off", "warn", "info", "trace"};
  return kNames.at(static_cast<std::size_t>(level));
}

// What the variables say, read once.
class Log {
 public:
  Log() {
    bool is_known = true;
    const char* value = std::getenv("FERRY_DEBUG");
    level_ = debug_level_of(value, is_known);
    if (!is_known)
      write(DebugLevel::warn, kOfProcess, fmt::format("FERRY_DEBUG={}: must be warn, info, trace or off", value));
    const char* pattern = std::getenv("FERRY_DEBUG_FILE");
    if (level_ == DebugLevel::off || pattern == nullptr || *pattern == '\0') return;
    const std::string name = debug_file_name(pattern);
    const int opened = open(name.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (opened >= 0) {
      file_ = opened;
      name_ = name;
    } else
      write(DebugLevel::warn, kOfProcess,
            fmt::format("FERRY_DEBUG_FILE={}: cannot be opened: {}", name, std::strerror(errno)));
  }

  DebugLevel level() const { return level_; }

  void write(DebugLevel level, int rank, const std::string& text) const {
    const std::string line = line_of(level, rank, text);
    if (write_line(line) || file_ == STDERR_FILENO) return;
    const int why = errno;
    std::call_once(moved_, [this, why] { move_to_standard_error(why); });
    write_line(line);
  }

 private:
  std::string line_of(DebugLevel level, int rank, const std::string& text) const {
    const std::string whose = rank == kOfProcess ? "process" : fmt::format("rank {}", rank);
    return fmt::format("ferry {}:{} {} {} {}: {}\n", host_, getpid(), time_of(std::chrono::system_clock::now()), whose,
                       name_of(level), text);
  }

  // False, with errno, where the file did not take all of it.
  bool write_line(const std::string& line) const {
    for (std::size_t done = 0; done < line.size();) {
      const ssize_t wrote = ::write(file_, line.data() + done, line.size() - done);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) return false;
      done += static_cast<std::size_t>(wrote);
    }
    return true;
  }

  // The descriptor stays and leads elsewhere, so threads that write meanwhile need not know.
  void move_to_standard_error(int why) const {
    if (dup3(STDERR_FILENO, file_, O_CLOEXEC) == -1) return;
    write_line(line_of(
        DebugLevel::warn, kOfProcess,
        fmt::format("FERRY_DEBUG_FILE={}: cannot be written: {}; this line and those after it are on standard error",
                    name_, std::strerror(why))));
  }

  const std::string host_ = host_name();
  DebugLevel level_ = DebugLevel::off;
  int file_ = STDERR_FILENO;  // open until the process ends
  std::string name_;          // of FERRY_DEBUG_FILE
  mutable std::once_flag moved_;
};

const Log& debug_output() {
  static const Log log;
  return log;
}

}  // namespace

bool debug_logs(DebugLevel level) { return level <= debug_output().level(); }

void write_debug_line(DebugLevel level, int rank, const std::string& text) { debug_output().write(level, rank, text); }

DebugLevel debug_level_of(const char* value, bool& is_known) {
  std::string text = value == nullptr ? "" : value;
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  is_known = true;
  if (text.empty() || text == "off" || text == "0") return DebugLevel::off;
  if (text == "warn") return DebugLevel::warn;
  if (text == "info" || text == "1") return DebugLevel::info;
  if (text == "trace") return DebugLevel::trace;
  is_known = false;
  return DebugLevel::off;
}

std::string debug_file_name(const std::string& pattern) {
  std::string name;
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    const std::string_view two = std::string_view(pattern).substr(at, 2);
    if (two == "%h")
      name += host_name();
    else if (two == "%p")
      name += std::to_string(getpid());
    else {
      name += pattern[at];
      continue;
    }
    ++at;
  }
  return name;
}

}  // namespace ferry
