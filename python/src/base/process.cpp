#include "python/src/base/process.h"

#include <pthread.h>
#include <unistd.h>

#include <system_error>

namespace ferry::python {
namespace {

// Written while there is no other thread that makes calls: as the module is made, and by the one thread of a fork's
// child.
pid_t process = 0;

void note_process() { process = getpid(); }

}  // namespace

void watch_processes() {
  note_process();
  const int error = pthread_atfork(nullptr, nullptr, note_process);
  if (error != 0) throw std::system_error(error, std::generic_category(), "pthread_atfork");
}

pid_t this_process() { return process; }

// A thread that forks is the main one of the child.
bool is_main_thread() {
  thread_local pid_t asked_in = 0;
  thread_local bool is_main = false;
  if (asked_in != process) {
    asked_in = process;
    is_main = process == gettid();
  }
  return is_main;
}

}  // namespace ferry::python
