// When a progress line is due, and how it looks.
#include "tool/text/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>

#include "tool/text/output.h"

namespace ferry::app {

using namespace std::chrono_literals;

Progress::Progress(std::string what, std::int64_t total)
    : what_(std::move(what)), total_(total), terminal_(isatty(STDERR_FILENO) == 1), next_(start_ + 2s) {}

Progress::~Progress() {
  if (shown_ && terminal_) std::fputs("\r\033[K", stderr);
}

void Progress::advance(std::int64_t steps) {
  const std::lock_guard lock(mutex_);
  done_ += steps;
  const Clock::time_point now = Clock::now();
  if (now >= next_ && done_ < total_ && prints() && !is_quiet()) show(now);
}

void Progress::show(Clock::time_point now) {
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double share = static_cast<double>(done_) / static_cast<double>(total_);
  const std::string line = fmt::format("{} {} of {} ({:.0f} %), {:.0f} s, about {:.0f} s left", what_, done_, total_,
                                       100 * share, seconds, share > 0 ? seconds * (1 - share) / share : 0);
  if (terminal_)
    std::fprintf(stderr, "\r\033[K%s", line.c_str());
  else
    std::fprintf(stderr, "%s\n", line.c_str());
  std::fflush(stderr);
  shown_ = true;
  next_ = now + (terminal_ ? Clock::duration(200ms) : Clock::duration(5s));
}

}  // namespace ferry::app
