// Dependent launches: a kernel that is put on a stream with this permission may start while the one before it ends.
#pragma once

namespace ferry::ptx {

// Before any access to memory that an earlier kernel of the stream may touch: returns when these are done and what
// they wrote can be seen. At once where the launch gave no permission.
__device__ inline void await_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel of the stream may begin to be launched once a thread of every thread block has said so. Other threads
// may still wait for another rank: where its blocks could then take the room of a kernel that others wait for, it is
// launched without (LaunchPolicy::pdl).
__device__ inline void let_next_kernel_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace ferry::ptx
