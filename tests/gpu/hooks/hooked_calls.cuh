// What the .cu files of hooked calls share: the exchange of this program, DirectFabric's or NvshmemFabric's, and its
// calls.
#pragma once

#include "gpu/hooks/hooked_calls.h"
#ifdef FERRY_TEST_HOOKS_OVER_NVSHMEM
#include "ferry/cuda/compiled_nvshmem_exchange.cuh"
#else
#include "ferry/cuda/compiled_exchange.cuh"
#endif

namespace ferry::test {

#ifdef FERRY_TEST_HOOKS_OVER_NVSHMEM
template <class Fmt, class Hooks>
using HookedUnderTest = cuda::CompiledNvshmemExchange<Fmt, Hooks>;
#else
template <class Fmt, class Hooks>
using HookedUnderTest = cuda::CompiledExchange<Fmt, Hooks>;
#endif

// `Hooks::of` makes the hooks of what they read and write.
template <class Hooked, class Hooks>
class Calls final : public HookedCalls {
 public:
  Calls(World& world, const Shape& shape, const ExchangeOptions& options) : hooked_(world, shape, options) {}
  Exchange& exchange() override { return hooked_.exchange(); }
  void dispatch(const DispatchInput& in, const DispatchOutput& out, const HookValues& values, bool split) override {
    const auto hooks = Hooks::of(values);
    if (!split) return hooked_.dispatch(in, out, hooks, on_own_stream());
    hooked_.dispatch_async(in, hooks, on_own_stream());
    hooked_.dispatch_wait(out, on_own_stream());
  }
  void combine(const CombineInput& in, const CombineOutput& out, const HookValues& values, bool split) override {
    const auto hooks = Hooks::of(values);
    if (!split) return hooked_.combine(in, out, hooks, on_own_stream());
    hooked_.combine_async(in, on_own_stream());
    hooked_.combine_wait(out, hooks, on_own_stream());
  }

 private:
  // The stream of the thread: ranks of other threads may share its GPU.
  static CallOptions on_own_stream() { return {.stream = cudaStreamPerThread}; }
  Hooked hooked_;
};

template <class Hooked, class Hooks>
std::unique_ptr<HookedCalls> make_calls(World& world, const Shape& shape, const ExchangeOptions& options) {
  return std::make_unique<Calls<Hooked, Hooks>>(world, shape, options);
}

// The hooks themselves, for those that have several.
struct HookBodies {
  HookValues values;
  __device__ float weight(int token, int k) const {
    for (int i = 0; token >= values.late_from && i < 200; ++i) __nanosleep(1000);
    return values.weights[token * values.top_k + k];
  }
  // Adds: a column that comes twice is seen.
  __device__ void add(int token, int column, const float* sums, int count) const {
    for (int i = 0; i < count; ++i) values.sums[token * values.hidden + column + i] += sums[i];
  }
};

struct AllHooks {
  HookBodies bodies;
  static AllHooks of(const HookValues& values) { return {{values}}; }
  __device__ float router_weight(int token, int k) const { return bodies.weight(token, k); }
  __device__ float input_scale() const { return *bodies.values.input_scale; }
  __device__ void epilogue(int token, int column, const float* sums, int count) const {
    bodies.add(token, column, sums, count);
  }
};

}  // namespace ferry::test
