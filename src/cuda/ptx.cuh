// Every line of assembly of Ferry: the clock of the device, and bulk copies between shared and global memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ferry::ptx {

// Nanoseconds, the same clock on all multiprocessors of a device.
__device__ inline std::uint64_t global_nanoseconds() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// I12: what this thread wrote to shared memory is seen by bulk copies issued after a barrier.
__device__ inline void fence_shared_for_bulk() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Shared memory to any device's memory; 16-byte aligned, a multiple of 16 bytes.
__device__ inline void bulk_store(std::byte* to, const std::byte* from_shared, std::size_t bytes) {
#if __CUDA_ARCH__ >= 900
  const auto shared = static_cast<std::uint32_t>(__cvta_generic_to_shared(from_shared));
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
               :
               : "l"(to), "r"(shared), "r"(static_cast<std::uint32_t>(bytes))
               : "memory");
#endif
}

// Closes the group of this thread's bulk stores since the last call.
__device__ inline void bulk_commit() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
}

// I12: at most kPending of this thread's groups are still on their way; the writes of the others are done (no .read).
template <int kPending>
__device__ inline void bulk_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group %0;" : : "n"(kPending) : "memory");
#endif
}

}  // namespace ferry::ptx
