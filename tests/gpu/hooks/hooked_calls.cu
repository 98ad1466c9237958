#include "gpu/hooks/hooked_calls.h"

#include "ferry/cuda/hooked_exchange.cuh"

namespace ferry::test {
namespace {

struct All {
  HookValues values;
  __device__ float router_weight(int token, int k) const { return values.weights[token * values.top_k + k]; }
  __device__ float input_scale() const { return *values.input_scale; }
  // Adds: a column that comes twice is seen.
  __device__ void epilogue(int token, int column, const float* sums, int count) const {
    for (int i = 0; i < count; ++i) values.sums[token * values.hidden + column + i] += sums[i];
  }
};
struct EpilogueAlone {
  HookValues values;
  __device__ void epilogue(int token, int column, const float* sums, int count) const {
    All{values}.epilogue(token, column, sums, count);
  }
};
// A hook may also be a member that can be called.
struct WeightOf {
  HookValues values;
  __device__ float operator()(int token, int k) const { return All{values}.router_weight(token, k); }
};
struct WeightAlone {
  WeightOf router_weight;
};

template <class Hooks>
Hooks hooks_of(const HookValues& values) {
  return {{values}};
}
template <>
All hooks_of<All>(const HookValues& values) {
  return {values};
}
template <>
EpilogueAlone hooks_of<EpilogueAlone>(const HookValues& values) {
  return {values};
}

template <class Fmt, class Hooks>
class Calls final : public HookedCalls {
 public:
  Calls(World& world, const Shape& shape, const ExchangeOptions& options) : hooked_(world, shape, options) {}
  Exchange& exchange() override { return hooked_.exchange(); }
  void dispatch(const DispatchInput& in, const DispatchOutput& out, const HookValues& values, bool split) override {
    const auto hooks = hooks_of<Hooks>(values);
    if (!split) return hooked_.dispatch(in, out, hooks);
    hooked_.dispatch_async(in, hooks);
    hooked_.dispatch_wait(out);
  }
  void combine(const CombineInput& in, const CombineOutput& out, const HookValues& values, bool split) override {
    const auto hooks = hooks_of<Hooks>(values);
    if (!split) return hooked_.combine(in, out, hooks);
    hooked_.combine_async(in);
    hooked_.combine_wait(out, hooks);
  }

 private:
  cuda::HookedExchange<Fmt, Hooks> hooked_;
};

}  // namespace

std::unique_ptr<HookedCalls> make_nvfp4_with_all(World& world, const Shape& shape, const ExchangeOptions& options) {
  return std::make_unique<Calls<Nvfp4, All>>(world, shape, options);
}
std::unique_ptr<HookedCalls> make_bf16_with_all(World& world, const Shape& shape, const ExchangeOptions& options) {
  return std::make_unique<Calls<Bf16, All>>(world, shape, options);
}
std::unique_ptr<HookedCalls> make_mxfp8_with_epilogue(World& world, const Shape& shape,
                                                      const ExchangeOptions& options) {
  return std::make_unique<Calls<Mxfp8, EpilogueAlone>>(world, shape, options);
}
std::unique_ptr<HookedCalls> make_mxfp8_with_weight(World& world, const Shape& shape, const ExchangeOptions& options) {
  return std::make_unique<Calls<Mxfp8, WeightAlone>>(world, shape, options);
}

}  // namespace ferry::test
