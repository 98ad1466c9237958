// Machine: who runs next, on the machine's one thread, and what hosts and device threads tell it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/emulated_gpu/threads.h"

namespace ferry::emulated {

struct Operation {
  std::unique_ptr<GridRun> kernel;
  std::function<void()> work;  // where there is no kernel
};

struct Stream {
  int device = 0;
  std::deque<Operation> pending;
  std::deque<std::unique_ptr<GridRun>> running;
  bool is_active = false;
  bool is_idle() const { return pending.empty() && running.empty(); }
};

struct Abandoned {};  // thrown by a thread's calls: its kernel ends

class Machine {
 public:
  static Machine& get() {
    static Machine machine;
    return machine;
  }

  // ---- for hosts
  void enqueue(Stream& stream, Operation operation);
  template <class IsIdle>
  bool wait_until(const IsIdle& is_idle);
  bool has_active_of(int device) const;
  bool is_idle(const Stream& stream);
  bool is_device_idle(int device);
  void reset(const MachineSettings& settings);
  void add_hold(int count);
  std::string failure();
  std::string standstill();

  // ---- for device threads
  Thread& here() const { return static_cast<Thread&>(*current); }
  void suspend(Thread& thread, Doing doing, const char* call);
  void make_ready(Thread& thread);
  void hold_back(Thread& thread);
  bool is_slow(const Warp& warp) const { return warp.block->grid->device == settings_.slow_device; }
  void advance() { ++progress_; }
  bool draw(int one_in) { return one_in > 0 && random() % static_cast<std::uint64_t>(one_in) == 0; }
  std::uint64_t now() { return now_ns_ += kLook; }
  void add_late(std::shared_ptr<Late> late) { late_.push_back(std::move(late)); }
  void let_next_launch(Block& block);
  [[noreturn]] void fail(std::string what);
  const MachineSettings& settings() const { return settings_; }

 private:
  static constexpr std::uint64_t kLook = 100;  // ns that a look at the clock takes
  enum class Turn { goes_on, stands_still };

  Machine() : thread_([this] { work(); }) {}
  ~Machine();

  std::uint64_t random() {  // xorshift64*
    random_ ^= random_ >> 12;
    random_ ^= random_ << 25;
    random_ ^= random_ >> 27;
    return random_ * 0x2545F4914F6CDD1Dull;
  }
  void work();
  void start_operations();
  bool start_one(Stream& stream);
  void begin(GridRun& run);
  void end_first(Stream& stream);
  Turn take_turn();
  std::size_t choose_warp();
  std::size_t other_than_slow(std::size_t place) const;
  static void fetch_ahead(const Warp& warp, unsigned lane);
  void step();
  void run(Thread& thread);
  void wake_one();
  bool wake_all();
  void step_late();
  void stand_still(std::unique_lock<std::mutex>& lock);
  std::string describe_all() const;
  void abandon_all();
  static void thread_body(void* argument);
  void end(Thread& thread);

  std::mutex guard_;
  std::condition_variable for_machine_;
  std::condition_variable for_hosts_;
  // Under the guard:
  std::vector<Stream*> active_;
  MachineSettings settings_;
  int holds_ = 0;
  bool stops_ = false;
  std::string failure_;
  std::string standstill_;
  // Only the machine's thread uses these:
  Stacks stacks_;
  std::vector<Warp*> ready_;
  std::vector<Thread*> looking_;
  Warp* held_back_ = nullptr;  // runs only where no other warp can
  int held_steps_ = 0;
  std::vector<std::shared_ptr<Late>> late_;
  std::uint64_t random_ = 0x9E3779B97F4A7C15ull;
  std::uint64_t progress_ = 1;       // what happened that a waiting thread might see
  std::uint64_t seen_progress_ = 0;  // when all waiting threads last looked
  bool has_looked_twice_ = false;    // all of them, since then
  std::uint64_t now_ns_ = 1;
  std::string failing_;
  int standstills_ = 0;
  bool a_kernel_ended_ = false;
  bool abandons_ = false;
  std::thread thread_;  // last: it uses all others
};

[[gnu::always_inline]] inline void Machine::suspend(Thread& thread, Doing doing, const char* call) {
  thread.doing = doing;
  thread.call = call;
  thread.warp->suspended_at[thread.lane] = static_cast<const std::byte*>(__builtin_frame_address(0));
  if (doing == Doing::runs) make_ready(thread);
  if (doing == Doing::looks_at_clock) looking_.push_back(&thread);
  thread.fiber.suspend();
  if (abandons_) throw Abandoned{};
}

inline bool Machine::is_idle(const Stream& stream) {
  const std::lock_guard lock(guard_);
  return stream.is_idle();
}
inline bool Machine::is_device_idle(int device) {
  const std::lock_guard lock(guard_);
  return !has_active_of(device);
}

template <class IsIdle>
bool Machine::wait_until(const IsIdle& is_idle) {
  std::unique_lock lock(guard_);
  for_hosts_.wait(lock, [&] { return !failure_.empty() || is_idle(); });
  return failure_.empty();
}

}  // namespace ferry::emulated
