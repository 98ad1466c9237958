#include "python/src/base/call_thread.h"

#include <ferry/error.h>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "python/src/base/process.h"

namespace nb = nanobind;

namespace ferry::python {
namespace {

constexpr std::chrono::milliseconds kLookEvery{50};  // for signals
constexpr std::chrono::seconds kPatience{2};         // for a call that was interrupted

template <class Call>
std::exception_ptr error_of(const Call& call) {
  try {
    call();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

// Makes one call after the other of the main thread: a new thread for each would take longer than a small dispatch.
class CallThread {
 public:
  CallThread() {
    std::thread([this] { run(); }).detach();
  }

  // It and its thread live as long as the process. A child process of a fork has a new one, as threads stay behind.
  static CallThread& of_this_process() {
    static CallThread* made = new CallThread;
    static pid_t process = this_process();
    if (process != this_process()) {
      made = new CallThread;
      process = this_process();
    }
    return *made;
  }

  void start(PendingCall& pending, const std::function<void()>& call) {
    const std::lock_guard lock(guard_);
    pending_ = &pending;
    call_ = &call;
    changed_.notify_one();
  }

 private:
  [[noreturn]] void run() {
    // Python's state of this thread, which it keeps: hooks of Python would make and end one each time they are called.
    PyGILState_Ensure();
    PyEval_SaveThread();
    for (;;) {
      std::unique_lock lock(guard_);
      changed_.wait(lock, [this] { return call_ != nullptr; });
      const std::function<void()>& call = *std::exchange(call_, nullptr);
      PendingCall& pending = *pending_;
      lock.unlock();
      pending.finish(error_of(call));
    }
  }

  std::mutex guard_;
  std::condition_variable changed_;
  PendingCall* pending_ = nullptr;
  const std::function<void()>* call_ = nullptr;
};

// What calls of OpenSHMEM's worlds met.
struct Losses {
  std::mutex guard;
  bool lost_a_rank = false;
} losses;

void call_recording_losses(const World& world, const std::function<void()>& call) {
  try {
    call();
  } catch (const PeerMissing&) {
    const std::lock_guard lock(losses.guard);
    losses.lost_a_rank = losses.lost_a_rank || world.kind() == WorldKind::shmem;
    throw;
  }
}

}  // namespace

// Under the lock to the end: the waiting thread destroys this when it sees the end.
void PendingCall::finish(std::exception_ptr error) {
  const std::lock_guard lock(guard_);
  error_ = std::move(error);
  has_ended_ = true;
  changed_.notify_all();
}

void PendingCall::ask(const std::function<void()>& work) {
  std::unique_lock lock(guard_);
  asked_ = &work;
  changed_.notify_all();
  changed_.wait(lock, [this] { return asked_ == nullptr || is_left_; });
  if (!is_left_) return;
  asked_ = nullptr;
  throw Left();
}

bool PendingCall::wait_a_moment() {
  const nb::gil_scoped_release without_gil;
  std::unique_lock lock(guard_);
  changed_.wait_for(lock, kLookEvery, [this] { return has_ended_ || asked_ != nullptr; });
  return has_ended_;
}

void PendingCall::answer() {
  const std::function<void()>* work = nullptr;
  {
    const std::lock_guard lock(guard_);
    work = asked_;
  }
  if (work == nullptr) return;
  (*work)();
  const std::lock_guard lock(guard_);
  asked_ = nullptr;
  changed_.notify_all();
}

void PendingCall::leave() {
  const std::lock_guard lock(guard_);
  is_left_ = true;
  changed_.notify_all();
}

std::exception_ptr PendingCall::look(bool answers) {
  return error_of([&] {
    if (answers) answer();
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  });
}

void PendingCall::wait(const std::function<void()>& interrupt) {
  std::exception_ptr raised;
  while (!wait_a_moment())
    if (const std::exception_ptr now = look(!raised)) {
      if (!raised) interrupt_by(interrupt);
      raised = now;
    }
  if (raised) std::rethrow_exception(raised);
  if (error_) std::rethrow_exception(error_);
}

void PendingCall::wait_or_leave(const std::function<void()>& interrupt) {
  std::exception_ptr raised;
  while (!raised && !wait_a_moment()) raised = look(true);
  if (raised && !interrupt) leave();
  if (raised && interrupt) {
    interrupt_by(interrupt);
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (!wait_a_moment() && !look(false) && std::chrono::steady_clock::now() < until) continue;
  }
  if (raised) std::rethrow_exception(raised);
  if (error_) std::rethrow_exception(error_);
}

// Nothing is answered any more.
void PendingCall::interrupt_by(const std::function<void()>& interrupt) {
  leave();
  const nb::gil_scoped_release without_gil;
  interrupt();
}

void call_enqueuing(World& world, const std::function<void()>& call) {
  const nb::gil_scoped_release without_gil;
  call_recording_losses(world, call);
}

void call_waiting(World& world, const std::function<void()>& call, const std::function<void()>& prepare) {
  if (!is_main_thread()) return call_enqueuing(world, call);
  PendingCall pending;
  const std::function<void()> prepared = [&] {
    prepare();
    call_recording_losses(world, call);
  };
  CallThread::of_this_process().start(pending, prepared);
  pending.wait([&] { world.abort("interrupted by a signal"); });
}

bool has_shmem_lost_a_rank() {
  const std::lock_guard lock(losses.guard);
  return losses.lost_a_rank;
}

void call_detached(std::function<void(PendingCall&)> call, const std::function<void()>& interrupt) {
  const auto pending = std::make_shared<PendingCall>();
  std::thread([pending, call = std::move(call)] { pending->finish(error_of([&] { call(*pending); })); }).detach();
  pending->wait_or_leave(interrupt);
}

}  // namespace ferry::python
