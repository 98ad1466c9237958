// CompiledHooks: a caller's hooks as a HookPolicy of kernels. They are device functions that are known when the kernel
// is compiled, so no call goes through a pointer.
#pragma once

#include <concepts>
#include <type_traits>

#include "ferry/detail/cuda/state/device_state.h"
#include "ferry/detail/cuda/state/f32_weights.cuh"
#include "ferry/detail/protocol/contracts/hooks.h"

namespace ferry::cuda {

// The hooks that a caller may give, as member functions or callable members.
template <class H>
concept HasRouterWeight = requires(const H& hooks) {
  { hooks.router_weight(int{}, int{}) } -> std::convertible_to<float>;
};
template <class H>
concept HasInputScale = requires(const H& hooks) {
  { hooks.input_scale() } -> std::convertible_to<float>;
};
template <class H>
concept HasEpilogue = requires(const H& hooks, const float* values) {
  hooks.epilogue(int{}, int{}, values, int{});
};

// No hook at all: weights come from the array, the input scale from its argument, sums are stored.
struct NoHooks {};

template <class H>
class CompiledHooks {
  static_assert(std::is_trivially_copyable_v<H>, "hooks travel in a kernel's parameter: make them trivially copyable");
  static_assert(sizeof(H) <= HookBytes::kMost && alignof(H) <= alignof(HookBytes),
                "hooks have at most 128 bytes, aligned to 16: keep what is larger in device memory and point to it");
  // Without this check a hook with other arguments would be ignored in silence.
  static_assert(
      HasRouterWeight<H> || !requires { &H::router_weight; },
      "router_weight must take (int token, int k), be const and return a float");
  static_assert(
      HasInputScale<H> || !requires { &H::input_scale; },
      "input_scale must take no argument, be const and return a float");
  static_assert(
      HasEpilogue<H> || !requires { &H::epilogue; },
      "epilogue must take (int token, int column, const float* values, int count) and be const");

 public:
  using Given = H;
  static constexpr bool kHasRouterWeight = HasRouterWeight<H>;

  __device__ explicit CompiledHooks(const HookBytes& bytes) : hooks_(reinterpret_cast<const H&>(bytes)) {}

  __device__ float router_weight(const Weights& weights, int token, int k) const {
    if constexpr (HasRouterWeight<H>)
      return hooks_.router_weight(token, k);
    else
      return given_weight(weights, token * weights.top_k + k);
  }
  __device__ float input_scale(const DispatchArgs& in) const {
    if constexpr (HasInputScale<H>)
      return hooks_.input_scale();
    else
      return in.scale();
  }
  // The epilogue is called directly where the sum is stored.
  __device__ void set_epilogue(const CombineOut&, RowSink& sink) const {
    if constexpr (HasEpilogue<H>) {
      sink.epilogue = [](void* hooks, int token, int column, const float* values, int count) {
        static_cast<const H*>(hooks)->epilogue(token, column, values, count);
      };
      sink.context = const_cast<H*>(&hooks_);
    }
  }

 private:
  const H& hooks_;
};
static_assert(HookPolicy<CompiledHooks<NoHooks>>);

}  // namespace ferry::cuda
