// Hooked: a fabric that carries a caller's hooks into its kernels.
#pragma once

#include "ferry/detail/cuda/fabric/compiled_hooks.cuh"
#include "ferry/detail/cuda/kernels/device_state.h"

namespace ferry::cuda {

template <class F, class H>
class Hooked : public F {
 public:
  using Hooks = CompiledHooks<H>;

  template <class Plan>
  __device__ Hooked(const PeerLinks& links, const Plan& plan, std::size_t buffer_bytes)
      : F(links, plan, buffer_bytes), hooks_(links.hooks) {}

  __device__ const Hooks& hooks() const { return hooks_; }

 private:
  Hooks hooks_;
};

}  // namespace ferry::cuda
