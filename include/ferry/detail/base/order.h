// Every atomic access of Ferry. A word that other threads touch is a Shared<T, Scope>: the scope belongs to the word,
// so two accesses of one word cannot disagree about it. Words that ranks share are never read-modify-write (I14).
// fetch_add, fetch_or and fetch_max are for threads or blocks of one rank: work queues, statistics and sums, whose
// order decides nothing.
#pragma once

#include <atomic>
#include <cstdint>

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
FERRY_HD T fetch_add_relaxed(Shared<T, S>& word, T value) {
#if defined(__CUDA_ARCH__)
  // Tells the compiler that the word is in shared memory: several times faster than a generic address.
  if constexpr (S == Scope::block) return atomicAdd_block(&word.raw, value);
  return ::cuda::atomic_ref<T, detail::kThreadScope<S>>(word.raw).fetch_add(value, ::cuda::memory_order_relaxed);
#else
  return std::atomic_ref<T>(word.raw).fetch_add(value, std::memory_order_relaxed);
#endif
}

template <class T, Scope S>
FERRY_HD T fetch_or_relaxed(Shared<T, S>& word, T value) {
#if defined(__CUDA_ARCH__)
  if constexpr (S == Scope::block) return atomicOr_block(&word.raw, value);
  return ::cuda::atomic_ref<T, detail::kThreadScope<S>>(word.raw).fetch_or(value, ::cuda::memory_order_relaxed);
#else
  return std::atomic_ref<T>(word.raw).fetch_or(value, std::memory_order_relaxed);
#endif
}

template <class T, Scope S>
FERRY_HD T fetch_max_relaxed(Shared<T, S>& word, T value) {
#if defined(__CUDA_ARCH__)
  return ::cuda::atomic_ref<T, detail::kThreadScope<S>>(word.raw).fetch_max(value, ::cuda::memory_order_relaxed);
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
FERRY_HD T fetch_add_acq_rel(Shared<T, S>& word, T value) {
#if defined(__CUDA_ARCH__)
  return ::cuda::atomic_ref<T, detail::kThreadScope<S>>(word.raw).fetch_add(value, ::cuda::memory_order_acq_rel);
#else
  return std::atomic_ref<T>(word.raw).fetch_add(value, std::memory_order_acq_rel);
#endif
}

}  // namespace ferry
