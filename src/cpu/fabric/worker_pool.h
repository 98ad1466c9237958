// WorkerPool: the threads that work for one CPU rank in a call, the caller's included. Idle threads sleep.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace ferry::cpu {

class WorkerPool {
 public:
  // Throws Error(system) where the system has no more threads.
  explicit WorkerPool(int workers);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Which worker of its pool this thread is; 0 for a thread that no pool has started.
  static int this_worker();

  int workers() const { return static_cast<int>(threads_.size()) + 1; }

  // Runs body(0) on this thread and body(1 .. workers-1) on the others, waits for all, rethrows the first error.
  void run(const std::function<void(int)>& body);

 private:
  void work(int worker);
  void call(int worker);
  void stop();

  std::vector<std::thread> threads_;
  std::mutex guard_;
  std::condition_variable started_;
  std::condition_variable finished_;
  const std::function<void(int)>* body_ = nullptr;
  std::uint64_t turn_ = 0;
  int running_ = 0;
  bool stopping_ = false;
  std::exception_ptr first_error_;
};

}  // namespace ferry::cpu
