#include "cpu/fabric/worker_pool.h"

#include <string>
#include <system_error>
#include <utility>

#include "ferry/error.h"

namespace ferry::cpu {
namespace {
thread_local int worker_of_this_thread = 0;
}

int WorkerPool::this_worker() { return worker_of_this_thread; }

WorkerPool::WorkerPool(int workers) {
  threads_.reserve(static_cast<std::size_t>(workers));
  try {
    for (int worker = 1; worker < workers; ++worker) threads_.emplace_back([this, worker] { work(worker); });
  } catch (const std::system_error& error) {
    stop();
    throw Error(ErrorKind::system, "workers is " + std::to_string(workers) + "; the system refused thread " +
                                       std::to_string(threads_.size() + 1) + ": " + error.what());
  }
}

WorkerPool::~WorkerPool() { stop(); }

void WorkerPool::stop() {
  {
    const std::lock_guard lock(guard_);
    stopping_ = true;
  }
  started_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::call(int worker) {
  try {
    (*body_)(worker);
  } catch (...) {
    const std::lock_guard lock(guard_);
    if (!first_error_) first_error_ = std::current_exception();
  }
}

void WorkerPool::work(int worker) {
  worker_of_this_thread = worker;
  std::uint64_t seen = 0;
  for (;;) {
    std::unique_lock lock(guard_);
    started_.wait(lock, [&] { return stopping_ || turn_ != seen; });
    if (stopping_) return;
    seen = turn_;
    lock.unlock();
    call(worker);
    lock.lock();
    if (--running_ == 0) finished_.notify_one();
  }
}

void WorkerPool::run(const std::function<void(int)>& body) {
  if (threads_.empty()) return body(0);
  {
    const std::lock_guard lock(guard_);
    body_ = &body;
    running_ = static_cast<int>(threads_.size());
    ++turn_;
  }
  started_.notify_all();
  call(0);
  std::unique_lock lock(guard_);
  finished_.wait(lock, [this] { return running_ == 0; });
  body_ = nullptr;
  if (const std::exception_ptr error = std::exchange(first_error_, nullptr)) std::rethrow_exception(error);
}

}  // namespace ferry::cpu
