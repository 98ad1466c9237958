// Guard: what C++ asks of its callers and Python does not promise. One thread at a time is in an object, nothing is
// used after close(), and nothing in a child process that a fork made: the threads of the object are not there.
#pragma once

#include <ferry/error.h>

#include <mutex>
#include <stdexcept>
#include <string>

#include "python/src/base/process.h"

namespace ferry::python {

// ferry.Closed: what a Python object had is gone since its close().
class Closed : public std::runtime_error {
 public:
  explicit Closed(const std::string& what) : std::runtime_error(what + " is closed; make another one") {}
};

class Guard {
 public:
  explicit Guard(const char* what) : what_(what), process_(this_process()) {}

  bool is_of_this_process() const { return process_ == this_process(); }

  // For calls from any thread. Throws Error(out_of_order) after a fork.
  void require_this_process() const {
    if (!is_of_this_process()) refuse(" was made before a fork; make it in the process that uses it");
  }

  // Holds the object for one call. Throws Error(out_of_order) where another thread is in a call, or after a fork.
  std::unique_lock<std::mutex> enter() {
    require_this_process();
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) refuse(": another thread is in a call of it");
    return lock;
  }

 private:
  [[noreturn]] void refuse(const char* why) const { throw Error(ErrorKind::out_of_order, std::string(what_) + why); }

  const char* what_;
  pid_t process_;
  std::mutex mutex_;
};

}  // namespace ferry::python
