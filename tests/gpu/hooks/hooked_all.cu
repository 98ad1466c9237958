#include "gpu/hooks/hooked_calls.cuh"

namespace ferry::test {
namespace {

struct All {
  HookBodies bodies;
  static All of(const HookValues& values) { return {{values}}; }
  __device__ float router_weight(int token, int k) const { return bodies.weight(token, k); }
  __device__ float input_scale() const { return *bodies.values.input_scale; }
  __device__ void epilogue(int token, int column, const float* sums, int count) const {
    bodies.add(token, column, sums, count);
  }
};

}  // namespace

std::unique_ptr<HookedCalls> make_nvfp4_with_all(World& world, const Shape& shape, const ExchangeOptions& options) {
  return make_calls<HookedUnderTest<Nvfp4, All>, All>(world, shape, options);
}
std::unique_ptr<HookedCalls> make_bf16_with_all(World& world, const Shape& shape, const ExchangeOptions& options) {
  return make_calls<HookedUnderTest<Bf16, All>, All>(world, shape, options);
}

}  // namespace ferry::test
