// Programmatic dependent launch (PDL): a kernel that is launched with it may start while the kernel before it ends.
#pragma once

namespace ferry::ptx {

// Must come before any access to memory that an earlier kernel of the stream may touch. Returns when the earlier
// kernels have ended and their stores are visible; at once in a launch without PDL.
__device__ inline void await_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Trigger: the next kernel of the stream may be launched after a thread of every thread block has called it. Other
// threads may still wait for another rank. Blocks of the next kernel could then take room that a kernel of another
// exchange needs; in that case the next kernel is launched without PDL (LaunchPolicy::pdl).
__device__ inline void let_next_kernel_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace ferry::ptx
