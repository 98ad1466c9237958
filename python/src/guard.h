// Guard: what C++ asks of its callers and Python does not promise. One thread at a time is in an object, nothing is
// used after close(), and nothing in a child process that a fork made: the threads of the object are not there.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <mutex>
#include <string>

namespace ferry::python {

class Guard {
 public:
  explicit Guard(const char* what) : what_(what), process_(getpid()) {}

  bool is_of_this_process() const { return process_ == getpid(); }

  // Holds the object for one call. Throws RuntimeError where another thread is in a call, or after a fork.
  std::unique_lock<std::mutex> enter() {
    if (!is_of_this_process()) refuse(" was made before a fork; make it in the process that uses it");
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) refuse(": another thread is in a call of it");
    return lock;
  }

 private:
  [[noreturn]] void refuse(const char* why) const {
    PyErr_SetString(PyExc_RuntimeError, (std::string(what_) + why).c_str());
    throw nanobind::python_error();
  }

  const char* what_;
  pid_t process_;
  std::mutex mutex_;
};

}  // namespace ferry::python
