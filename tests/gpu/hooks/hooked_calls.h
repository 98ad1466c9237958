// Exchanges with hooks behind one interface, so that only .cu files hold kernels.
#pragma once

#include <limits>
#include <memory>

#include "ferry/exchange.h"

namespace ferry::test {

// What the hooks read and write, in device memory.
struct HookValues {
  const float* weights = nullptr;  // [tokens, top_k]
  int top_k = 0;
  const float* input_scale = nullptr;
  float* sums = nullptr;  // [tokens, hidden]
  int hidden = 0;
  int late_from = std::numeric_limits<int>::max();  // weights of tokens from here on take 0.2 ms and more
};

class HookedCalls {
 public:
  virtual ~HookedCalls() = default;
  virtual Exchange& exchange() = 0;
  // In one call each, or split.
  virtual void dispatch(const DispatchInput& in, const DispatchOutput& out, const HookValues& values, bool split) = 0;
  virtual void combine(const CombineInput& in, const CombineOutput& out, const HookValues& values, bool split) = 0;
};

using MakeHooked = std::unique_ptr<HookedCalls> (*)(World&, const Shape&, const ExchangeOptions&);

// Hooks: router_weight, input_scale and epilogue; the epilogue alone; the router's weight alone. Over DirectFabric in
// gpu_hook_tests, over NvshmemFabric in nvshmem_hook_tests.
std::unique_ptr<HookedCalls> make_nvfp4_with_all(World& world, const Shape& shape, const ExchangeOptions& options);
std::unique_ptr<HookedCalls> make_bf16_with_all(World& world, const Shape& shape, const ExchangeOptions& options);
std::unique_ptr<HookedCalls> make_fp8_with_epilogue(World& world, const Shape& shape, const ExchangeOptions& options);
std::unique_ptr<HookedCalls> make_fp8_with_weight(World& world, const Shape& shape, const ExchangeOptions& options);
// Formats of the program itself: without hooks, and with all.
std::unique_ptr<HookedCalls> make_int8(World& world, const Shape& shape, const ExchangeOptions& options);
std::unique_ptr<HookedCalls> make_int8_with_all(World& world, const Shape& shape, const ExchangeOptions& options);
std::unique_ptr<HookedCalls> make_int8_transposed(World& world, const Shape& shape, const ExchangeOptions& options);
std::unique_ptr<HookedCalls> make_int8_tiled(World& world, const Shape& shape, const ExchangeOptions& options);

}  // namespace ferry::test
