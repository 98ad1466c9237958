#include "gpu/hooks/hooked_calls.cuh"

namespace ferry::test {

std::unique_ptr<HookedCalls> make_nvfp4_with_all(World& world, const Shape& shape, const ExchangeOptions& options) {
  return make_calls<HookedUnderTest<Nvfp4, AllHooks>, AllHooks>(world, shape, options);
}
std::unique_ptr<HookedCalls> make_bf16_with_all(World& world, const Shape& shape, const ExchangeOptions& options) {
  return make_calls<HookedUnderTest<Bf16, AllHooks>, AllHooks>(world, shape, options);
}

}  // namespace ferry::test
