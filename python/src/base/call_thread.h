// Calls that wait for other ranks, made so that Ctrl-C ends them. Python runs its signal handlers on the main thread
// alone, and only while that thread is in Python. So a call of the main thread runs on another thread, and the main
// thread looks for signals until it is done.
#pragma once

#include <ferry/tensor.h>
#include <ferry/world.h>
#include <nanobind/nanobind.h>

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>

namespace ferry::python {

// A call that another thread makes.
class PendingCall {
 public:
  // On the other thread: its last use of this, unless it shares it.
  void finish(std::exception_ptr error);
  // On the other thread: `work` is done by the thread that waits, with the GIL. Throws Left where nobody waits any
  // more.
  void ask(const std::function<void()>& work);
  struct Left : std::exception {};

  // With the GIL, which it gives up meanwhile: returns when the call has ended, and throws what it threw. Where a
  // signal handler or what was asked for raises, `interrupt` makes the call end, without the GIL. Then that comes out.
  void wait(const std::function<void()>& interrupt);
  // The same of a call that owns all that it uses: it is left to itself at the next signal, or if it does not end soon,
  // or at once where there is no `interrupt`.
  void wait_or_leave(const std::function<void()>& interrupt);

 private:
  bool wait_a_moment();
  // What a signal handler raises now, or what was asked for.
  std::exception_ptr look(bool answers);
  void answer();
  void leave();
  void interrupt_by(const std::function<void()>& interrupt);

  std::mutex guard_;
  std::condition_variable changed_;
  bool has_ended_ = false;
  bool is_left_ = false;
  std::exception_ptr error_;
  const std::function<void()>* asked_ = nullptr;
};

// Runs `call`, which may wait for other ranks of `world`, without the GIL, which the caller holds. A signal handler
// that raises aborts the world, and so ends the call. `prepare` comes before it where another thread makes the call.
void call_waiting(World& world, const std::function<void()>& call, const std::function<void()>& prepare);

// The same for a call that only enqueues kernels. It stays on its thread, which may be capturing a graph.
void call_enqueuing(World& world, const std::function<void()>& call);

// Makes the GPU of a rank the current one of a thread that is Ferry's own; nothing on CPUs. Else a call, at its end,
// would go back to GPU 0 and make a context there. The folder cuda has it.
void stay_on(Device device);

// Whether a call_waiting of an OpenSHMEM world missed a rank: the processes of its job cannot end it together any more.
bool has_shmem_lost_a_rank();

// As call_waiting, where there is no world yet. A signal handler that raises ends `call` by `interrupt`, or leaves it
// to itself, so `call` owns all that it uses but what it hands to ask().
void call_detached(std::function<void(PendingCall&)> call, const std::function<void()>& interrupt = {});

}  // namespace ferry::python
