// When a progress line is due, and how it looks.
#include "tool/text/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "tool/text/output.h"

namespace ferry::app {

using namespace std::chrono_literals;

namespace {

constexpr auto kFirst = 2s;
constexpr auto kNext = 5s;
constexpr auto kNextOnTerminal = 200ms;  // where a step is done; else kTickOnTerminal, which disturbs measurements less
constexpr auto kTickOnTerminal = 1s;

struct Latest {
  std::mutex mutex;
  Progress* progress = nullptr;
};
Latest& latest() {
  static Latest of_process;
  return of_process;
}

}  // namespace

std::optional<double> seconds_left(std::int64_t done, std::int64_t total, double of_done, double of_step) {
  if (done <= 0 || done >= total) return std::nullopt;
  const double each = of_done / static_cast<double>(done);
  if (of_step > 2 * each) return std::nullopt;
  const double of_others = each * static_cast<double>(total - done - 1);
  if (of_step > each && done + 1 == total) return std::nullopt;
  return of_others + std::max(0.0, each - of_step);
}

Progress::Progress(std::string what, std::int64_t total)
    : what_(std::move(what)), total_(total), terminal_(isatty(STDERR_FILENO) == 1), next_(start_ + kFirst) {
  if (!prints() || is_quiet()) return;
  const std::lock_guard lock(latest().mutex);
  latest().progress = this;
  ticker_ = std::thread([this] { tick(); });
}

Progress::~Progress() {
  {
    const std::lock_guard lock(latest().mutex);
    if (latest().progress == this) latest().progress = nullptr;
  }
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  end_.notify_all();
  if (ticker_.joinable()) ticker_.join();
  if (shown_ && terminal_) std::fputs("\r\033[K", stderr);
}

void Progress::advance(std::int64_t steps) {
  const std::lock_guard lock(mutex_);
  done_ += steps;
  const Clock::time_point now = Clock::now();
  last_done_ = now;
  if (now >= next_ && has_more() && ticker_.joinable()) show(now);
}

void Progress::doing(const std::string& what) {
  const std::lock_guard lock(latest().mutex);
  if (latest().progress == nullptr) return;
  Progress& progress = *latest().progress;
  const std::lock_guard lock_of_it(progress.mutex_);
  progress.doing_ = what;
  progress.doing_since_ = Clock::now();
}

void Progress::clear_shown() {
  const std::lock_guard lock(latest().mutex);
  if (latest().progress == nullptr) return;
  Progress& progress = *latest().progress;
  const std::lock_guard lock_of_it(progress.mutex_);
  if (!progress.shown_ || !progress.terminal_) return;
  std::fputs("\r\033[K", stderr);
  progress.shown_ = false;
  progress.next_ = Clock::now() + kNextOnTerminal;
}

void Progress::tick() {
  std::unique_lock lock(mutex_);
  for (Clock::time_point due = next_; !end_.wait_until(lock, due, [this] { return ended_; });) {
    if (const Clock::time_point now = Clock::now(); now >= next_ && has_more()) show(now);
    due = Clock::now() + (terminal_ ? kTickOnTerminal : kNext);
  }
}

std::string Progress::line(Clock::time_point now) const {
  const auto seconds_since = [now](Clock::time_point then) {
    return std::chrono::duration<double>(now - then).count();
  };
  const double seconds = seconds_since(start_);
  if (total_ == kOneWait) return fmt::format("{}, {:.0f} s", what_, seconds);
  const double share = static_cast<double>(done_) / static_cast<double>(total_);
  std::string text = fmt::format("{} {} of {} ({:.0f} %), {:.0f} s", what_, done_, total_, 100 * share, seconds);
  const double of_step = seconds_since(last_done_);
  if (const auto left = seconds_left(done_, total_, seconds - of_step, of_step))
    text += fmt::format(", about {:.0f} s left", *left);
  if (!doing_.empty()) text += fmt::format("; {}, {:.0f} s", doing_, seconds_since(doing_since_));
  return text;
}

void Progress::show(Clock::time_point now) {
  std::string text = line(now);
  if (terminal_) text.resize(std::min(text.size(), columns_of(STDERR_FILENO) - 1));  // one line, or it is not rewritten
  if (terminal_)
    std::fprintf(stderr, "\r\033[K%s", text.c_str());
  else
    std::fprintf(stderr, "%s\n", text.c_str());
  std::fflush(stderr);
  shown_ = true;
  next_ = now + (terminal_ ? Clock::duration(kNextOnTerminal) : Clock::duration(kNext));
}

}  // namespace ferry::app
