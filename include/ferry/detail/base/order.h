// Every atomic access of Ferry. A word that other threads touch is a Shared<T, Scope>: the scope belongs to the word,
// so two accesses of one word cannot disagree about it. Words that ranks share are never read-modify-write (I14).
// fetch_add, fetch_or and fetch_max are for threads or blocks of one rank: work queues, statistics and sums, whose
// order decides nothing. On GPUs bits are of a block, and a largest value is of blocks.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "ferry/formats/portable.h"

#if defined(__CUDACC__)
#include <cuda/atomic>
#endif

namespace ferry {

// Who shares the word: the threads of a block, the blocks of one rank, or several ranks.
enum class Scope { block, device, system };

template <class T, Scope S>
struct Shared {
  T raw{};
};
template <class T>
using SystemWord = Shared<T, Scope::system>;
template <class T>
using DeviceWord = Shared<T, Scope::device>;
template <class T>
using BlockWord = Shared<T, Scope::block>;

using Epoch = std::uint64_t;
using SignalWord = SystemWord<Epoch>;  // a signal between ranks: only grows, and is compared with >=

namespace detail {
#if defined(__CUDACC__)
template <Scope S>
inline constexpr ::cuda::thread_scope kThreadScope = S == Scope::block    ? ::cuda::thread_scope_block
                                                     : S == Scope::device ? ::cuda::thread_scope_device
                                                                          : ::cuda::thread_scope_system;
// The type that atomicAdd and atomicMax take in place of std::uint64_t.
template <class T>
using AtomicArg = std::conditional_t<sizeof(T) == sizeof(unsigned long long), unsigned long long, T>;

// The argument of an atomic function of CUDA. The function knows where the word lies: words of a block are in shared
// memory, words of a device in global memory, and no word that threads share is in a thread's own. For a generic
// address there is code for each kind of memory, and the thread waits until the access has said which it was.
template <class T, Scope S>
__device__ AtomicArg<T>* atomic_address(Shared<T, S>& word) {
  if constexpr (S == Scope::device) __builtin_assume(__isGlobal(&word.raw));
  return reinterpret_cast<AtomicArg<T>*>(&word.raw);
}
#endif
}  // namespace detail

template <class T, Scope S>
FERRY_HD T load_acquire(const Shared<T, S>& word) {
#if defined(__CUDA_ARCH__)
  return ::cuda::atomic_ref<T, detail::kThreadScope<S>>(const_cast<T&>(word.raw)).load(::cuda::memory_order_acquire);
#else
  return std::atomic_ref<T>(const_cast<T&>(word.raw)).load(std::memory_order_acquire);
#endif
}

template <class T, Scope S>
FERRY_HD T load_relaxed(const Shared<T, S>& word) {
#if defined(__CUDA_ARCH__)
  return ::cuda::atomic_ref<T, detail::kThreadScope<S>>(const_cast<T&>(word.raw)).load(::cuda::memory_order_relaxed);
#else
  return std::atomic_ref<T>(const_cast<T&>(word.raw)).load(std::memory_order_relaxed);
#endif
}

template <class T, Scope S>
FERRY_HD void store_release(Shared<T, S>& word, T value) {
#if defined(__CUDA_ARCH__)
  ::cuda::atomic_ref<T, detail::kThreadScope<S>>(word.raw).store(value, ::cuda::memory_order_release);
#else
  std::atomic_ref<T>(word.raw).store(value, std::memory_order_release);
#endif
}

template <class T, Scope S>
FERRY_HD void store_relaxed(Shared<T, S>& word, T value) {
#if defined(__CUDA_ARCH__)
  ::cuda::atomic_ref<T, detail::kThreadScope<S>>(word.raw).store(value, ::cuda::memory_order_relaxed);
#else
  std::atomic_ref<T>(word.raw).store(value, std::memory_order_relaxed);
#endif
}

template <class T, Scope S>
requires(S != Scope::system) FERRY_HD T fetch_add_relaxed(Shared<T, S>& word, T value) {
#if defined(__CUDA_ARCH__)
  if constexpr (S == Scope::block)
    return atomicAdd_block(detail::atomic_address(word), detail::AtomicArg<T>{value});
  else
    return atomicAdd(detail::atomic_address(word), detail::AtomicArg<T>{value});
#else
  return std::atomic_ref<T>(word.raw).fetch_add(value, std::memory_order_relaxed);
#endif
}

template <class T, Scope S>
requires(S != Scope::system) FERRY_HD T fetch_or_relaxed(Shared<T, S>& word, T value) {
#if defined(__CUDA_ARCH__)
  static_assert(S == Scope::block, "no kernel sets bits of a device's word");
  return atomicOr_block(detail::atomic_address(word), detail::AtomicArg<T>{value});
#else
  return std::atomic_ref<T>(word.raw).fetch_or(value, std::memory_order_relaxed);
#endif
}

template <class T, Scope S>
requires(S != Scope::system) FERRY_HD T fetch_max_relaxed(Shared<T, S>& word, T value) {
#if defined(__CUDA_ARCH__)
  static_assert(S == Scope::device, "no kernel has a largest value of a block's");
  return atomicMax(detail::atomic_address(word), detail::AtomicArg<T>{value});
#else
  const std::atomic_ref<T> shared(word.raw);
  T before = shared.load(std::memory_order_relaxed);
  while (before < value && !shared.compare_exchange_weak(before, value, std::memory_order_relaxed)) {
  }
  return before;
#endif
}

// Acquire and release: what a thread did before an earlier addition is visible after a later one.
template <class T, Scope S>
requires(S != Scope::system) FERRY_HD T fetch_add_acq_rel(Shared<T, S>& word, T value) {
#if defined(__CUDA_ARCH__)
  return ::cuda::atomic_ref<T, detail::kThreadScope<S>>(word.raw).fetch_add(value, ::cuda::memory_order_acq_rel);
#else
  return std::atomic_ref<T>(word.raw).fetch_add(value, std::memory_order_acq_rel);
#endif
}

}  // namespace ferry
