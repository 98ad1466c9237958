// Ranks over OpenSHMEM, for the Python module.
#include <ferry/worlds/shmem_world.h>

#include <cstdio>
#include <cstdlib>

#include "transport.h"

namespace ferry::python {
namespace {

bool has_finished = false;

// OpenSHMEM's clean-up at exit waits for processes that may be gone. It registered itself before this did, so it would
// come after it.
void leave_at_exit(int status, void*) {
  if (has_finished) return;
  std::fflush(nullptr);
  std::_Exit(status);
}

class Job final : public ShmemTransport {
 public:
  explicit Job(const ShmemOptions& options) : job_(options) { on_exit(leave_at_exit, nullptr); }
  std::unique_ptr<ProcessWorld> make_world(int nodes, std::chrono::milliseconds deadline) override {
    return job_.make_world(0, nodes, deadline);
  }
  void finish(std::chrono::milliseconds deadline) override {
    job_.finish(deadline);
    has_finished = true;
  }

 private:
  ShmemJob job_;
};

}  // namespace
}  // namespace ferry::python

extern "C" __attribute__((visibility("default"))) ferry::python::ShmemTransport* ferry_start_shmem(
    std::size_t heap_bytes, std::chrono::milliseconds deadline) {
  return new ferry::python::Job({.heap_bytes = heap_bytes, .start_deadline = deadline});
}
