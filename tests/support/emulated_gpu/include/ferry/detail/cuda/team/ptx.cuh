// ptx.cuh for emulated GPUs: the same functions, by calls of the machine. Copies complete later.
#pragma once

#include <cstddef>
#include <cstdint>

#include "support/emulated_gpu/device_calls.h"

namespace ferry::ptx {

inline std::uint64_t global_nanoseconds() { return emulated::look_at_clock(); }

inline void team_sync(int barrier, int threads) { emulated::sync(barrier, threads, true, "team_sync"); }
inline bool team_all(int barrier, int threads, bool value) {
  return emulated::sync(barrier, threads, value, "team_all");
}
inline bool warp_all(bool value) { return __all_sync(0xFFFFFFFFu, value) != 0; }

inline void prefetch_to_l2(const std::byte*) {}
inline void prefetch_to_l1(const std::byte*) {}

inline void copy_to_shared(uint4* to_shared, const std::byte* from) {
  emulated::copy_to_shared(reinterpret_cast<std::byte*>(to_shared), from, sizeof *to_shared);
}
inline void copies_commit() { emulated::commit_copies(); }
template <int kPending>
void copies_wait() {
  emulated::wait_for_copies(kPending);
}

inline void fence_shared_for_bulk() { emulated::fence_for_bulk_copies(); }
inline void bulk_store(std::byte* to, const std::byte* from_shared, std::size_t bytes) {
  emulated::bulk_copy(to, from_shared, bytes);
}
inline void bulk_commit() { emulated::commit_bulk_copies(); }
template <int kPending>
void bulk_wait() {
  emulated::wait_for_bulk_copies(kPending, false);
}
template <int kPending>
void bulk_wait_read() {
  emulated::wait_for_bulk_copies(kPending, true);
}

}  // namespace ferry::ptx
