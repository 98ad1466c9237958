// A fiber: a function with a stack of its own, that can be left in the middle and resumed. The switch is
// Boost.Context's; AddressSanitizer is told of each, since it keeps the bounds of the stack.
#pragma once

#include <boost/context/fiber.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define FERRY_EMULATED_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FERRY_EMULATED_ASAN 1
#endif
#endif
#if defined(FERRY_EMULATED_ASAN)
#include <sanitizer/common_interface_defs.h>
#endif

namespace ferry::emulated {

// Stacks of one size, which are used again. One thread uses them. The size is no multiple of a page, so the ends of the
// stacks, which are used most, do not all compete for the same lines of the cache.
class Stacks {
 public:
#if defined(FERRY_EMULATED_ASAN)
  static constexpr std::size_t kBytes = 256 * 1024 + 13 * 64;
#else
  static constexpr std::size_t kBytes = 64 * 1024 + 13 * 64;
#endif
  std::byte* take();
  void give_back(std::byte* stack) { free_.push_back(stack); }

 private:
  static constexpr std::size_t kAtOnce = 256;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::vector<std::byte*> free_;
};

class Fiber {
 public:
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // `body` runs at the first resume(). It must not throw, and the fiber must have ended, or not begun, when it is
  // destroyed.
  void start(Stacks& stacks, void (*body)(void*), void* argument);
  // From outside: runs the fiber until it suspends itself or ends.
  void resume();
  // From inside.
  void suspend();

 private:
  void begin_switch(void** own_frames, const void* bottom, std::size_t bytes);
  void end_switch(void* own_frames, const void** bottom, std::size_t* bytes);

  boost::context::fiber inside_;
  boost::context::fiber outside_;
  // For AddressSanitizer: frames that it keeps apart, and the stacks of both sides.
  void* inside_frames_ = nullptr;
  void* outside_frames_ = nullptr;
  const void* outside_bottom_ = nullptr;
  std::size_t outside_bytes_ = 0;
  const std::byte* stack_ = nullptr;
};

// Inline, as Machine::suspend is: after a switch the processor predicts no return, so each that is not there counts.
inline void Fiber::resume() {
  begin_switch(&outside_frames_, stack_, Stacks::kBytes);
  inside_ = std::move(inside_).resume();
  end_switch(outside_frames_, nullptr, nullptr);
}

inline void Fiber::suspend() {
  begin_switch(&inside_frames_, outside_bottom_, outside_bytes_);
  outside_ = std::move(outside_).resume();
  end_switch(inside_frames_, &outside_bottom_, &outside_bytes_);
}

#if defined(FERRY_EMULATED_ASAN)
inline void Fiber::begin_switch(void** own_frames, const void* bottom, std::size_t bytes) {
  __sanitizer_start_switch_fiber(own_frames, bottom, bytes);
}
inline void Fiber::end_switch(void* own_frames, const void** bottom, std::size_t* bytes) {
  __sanitizer_finish_switch_fiber(own_frames, bottom, bytes);
}
#else
inline void Fiber::begin_switch(void**, const void*, std::size_t) {}
inline void Fiber::end_switch(void*, const void**, std::size_t*) {}
#endif

}  // namespace ferry::emulated
