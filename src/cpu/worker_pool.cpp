#include "cpu/worker_pool.h"

#include <utility>

namespace ferry::cpu {

WorkerPool::WorkerPool(int workers) {
  for (int worker = 1; worker < workers; ++worker) threads_.emplace_back([this, worker] { work(worker); });
}

WorkerPool::~WorkerPool() {
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
