#include "gpu/hooks/hooked_calls.cuh"

namespace ferry::test {
namespace {

struct EpilogueAlone {
  HookBodies bodies;
  static EpilogueAlone of(const HookValues& values) { return {{values}}; }
  __device__ void epilogue(int token, int column, const float* sums, int count) const {
    bodies.add(token, column, sums, count);
  }
};
// A hook may also be a member that can be called.
struct WeightOf {
  HookBodies bodies;
  __device__ float operator()(int token, int k) const { return bodies.weight(token, k); }
};
struct WeightAlone {
  WeightOf router_weight;
  static WeightAlone of(const HookValues& values) { return {{{values}}}; }
};

}  // namespace

std::unique_ptr<HookedCalls> make_fp8_with_epilogue(World& world, const Shape& shape, const ExchangeOptions& options) {
  return make_calls<HookedUnderTest<Fp8Block128, EpilogueAlone>, EpilogueAlone>(world, shape, options);
}
std::unique_ptr<HookedCalls> make_fp8_with_weight(World& world, const Shape& shape, const ExchangeOptions& options) {
  return make_calls<HookedUnderTest<Fp8Block128, WeightAlone>, WeightAlone>(world, shape, options);
}

}  // namespace ferry::test
