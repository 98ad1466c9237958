// Ctrl-C while a command works: it says what was done, and ends as it would have ended.
#pragma once

#include <csignal>
#include <functional>
#include <thread>

namespace ferry::app {

// While it lives, SIGINT and SIGTERM call `say` on a thread of its own, and then end the process; a signal that is
// ignored stays so. One at a time in a process.
class OnInterrupt {
 public:
  explicit OnInterrupt(std::function<void()> say);  // throws Error(system)
  ~OnInterrupt();
  OnInterrupt(const OnInterrupt&) = delete;
  OnInterrupt& operator=(const OnInterrupt&) = delete;

 private:
  void watch();

  std::function<void()> say_;
  int came_ = -1;             // the end of a pipe from which the watcher reads which signal came
  struct sigaction of_int_;   // before
  struct sigaction of_term_;  // before
  std::thread watcher_;
};

}  // namespace ferry::app
