// Progress on standard error, for work that takes longer than two seconds: one line that is rewritten on a terminal,
// plain lines every five seconds elsewhere, whether a step was done meanwhile or not. Shorter work prints nothing.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace ferry::app {

// How long the rest takes, where each step takes as long as those that are done. `of_done`: seconds that they took;
// `of_step`: seconds since then. Nothing where it cannot be said: no step is done, the step takes far longer than those
// before, so that it says nothing of those to come and perhaps does not end, or only a step that is late is left.
std::optional<double> seconds_left(std::int64_t done, std::int64_t total, double of_done, double of_step);

class Progress {
 public:
  // In place of steps: the line says what is waited for, and for how long so far.
  static constexpr std::int64_t kOneWait = 0;
  // `what` is a short phrase, such as "layer: tokens"; `total` is how many steps there are, or kOneWait.
  Progress(std::string what, std::int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(std::int64_t steps = 1);  // from any thread
  // What a step is at, such as "measuring the wire", in the latest Progress that lives, if there is one. From any
  // thread.
  static void doing(const std::string& what);
  // Takes the line of the latest Progress off the terminal, so that what is printed next has a line of its own.
  static void clear_shown();

 private:
  using Clock = std::chrono::steady_clock;
  void tick();
  bool has_more() const { return total_ == kOneWait || done_ < total_; }
  void show(Clock::time_point now);
  std::string line(Clock::time_point now) const;

  const std::string what_;
  const std::int64_t total_;
  const bool terminal_;
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  std::int64_t done_ = 0;
  Clock::time_point last_done_ = start_;
  std::string doing_;
  Clock::time_point doing_since_;
  Clock::time_point next_;
  bool shown_ = false;
  bool ended_ = false;
  std::condition_variable end_;
  std::thread ticker_;  // last: it uses all others
};

}  // namespace ferry::app
