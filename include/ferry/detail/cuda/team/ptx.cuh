// PTX of dispatch and combine: the clock of the device, barriers of some warps, prefetches, copies into shared memory,
// and bulk copies from it. ptx_launch.cuh has dependent launches, ferry/detail/formats/ptx_numbers.cuh has conversions.
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

// A barrier of `threads` threads of a thread block. `barrier` is 0 to 15, and one team at a time uses it. A team
// consists of whole warps; .aligned tells the compiler, which then keeps their lanes converged, as __syncthreads does.
__device__ inline void team_sync(int barrier, int threads) {
  asm volatile("barrier.cta.sync.aligned %0, %1;" : : "r"(barrier), "r"(threads) : "memory");
}
// The same, with the answer whether `value` is true in all of the threads.
__device__ inline bool team_all(int barrier, int threads, bool value) {
  int result;
  asm volatile(
      "{.reg .pred p, q; setp.ne.u32 p, %3, 0; barrier.cta.red.and.pred.aligned q, %1, %2, p; selp.u32 %0, 1, 0, q;}"
      : "=r"(result)
      : "r"(barrier), "r"(threads), "r"(value ? 1 : 0)
      : "memory");
  return result != 0;
}

// A vote of a warp that its lanes leave together. They may arrive apart: a lane that polls lets those that wait for it
// run ahead, and a barrier of the warp does not join them again. All that follows would run once for each part. Because
// of .aligned the compiler joins the lanes before movmatrix, which transposes a matrix of two halves of a word of each
// lane: here all halves are the same, so nothing changes.
__device__ inline bool warp_all(bool value) {
  std::uint32_t word = __all_sync(0xFFFFFFFFu, value) != 0 ? 0xFFFFFFFFu : 0u;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(word) : : "memory");
  return word != 0;
}

// Prefetches a cache line of this device's memory into the L2 cache.
__device__ inline void prefetch_to_l2(const std::byte* address) {
  asm volatile("prefetch.global.L2 [%0];" : : "l"(address));
}

// The same, into the L1 cache of this multiprocessor as well.
__device__ inline void prefetch_to_l1(const std::byte* address) {
  asm volatile("prefetch.global.L1 [%0];" : : "l"(address));
}

// Copies 16 bytes into shared memory. This thread may read them after it has waited for their group.
__device__ inline void copy_to_shared(uint4* to_shared, const std::byte* from) {
  const auto shared = static_cast<std::uint32_t>(__cvta_generic_to_shared(to_shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(shared), "l"(from) : "memory");
}
// Commits this thread's copies since the last call as a group, which may be empty.
__device__ inline void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most the last kPending groups of this thread are in flight.
template <int kPending>
__device__ inline void copies_wait() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kPending) : "memory");
}

// I12: orders this thread's stores to shared memory before bulk copies that are issued after a barrier.
__device__ inline void fence_shared_for_bulk() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Bulk copy from shared memory to any device's memory: 16-byte aligned, a multiple of 16 bytes.
__device__ inline void bulk_store(std::byte* to, const std::byte* from_shared, std::size_t bytes) {
#if __CUDA_ARCH__ >= 900
  const auto shared = static_cast<std::uint32_t>(__cvta_generic_to_shared(from_shared));
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
               :
               : "l"(to), "r"(shared), "r"(static_cast<std::uint32_t>(bytes))
               : "memory");
#endif
}

// Commits this thread's bulk copies since the last call as a group.
__device__ inline void bulk_commit() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
}

// I12: waits until the writes of all but the last kPending groups of this thread are complete (no .read).
template <int kPending>
__device__ inline void bulk_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group %0;" : : "n"(kPending) : "memory");
#endif
}

// I12: waits until shared memory has been read for all but the last kPending groups of this thread.
template <int kPending>
__device__ inline void bulk_wait_read() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group.read %0;" : : "n"(kPending) : "memory");
#endif
}

}  // namespace ferry::ptx
