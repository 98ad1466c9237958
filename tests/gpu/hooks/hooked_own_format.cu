#include "gpu/hooks/hooked_calls.cuh"
#include "support/own_formats.h"

namespace ferry::test {
namespace {

struct None {
  static cuda::NoHooks of(const HookValues&) { return {}; }
};

template <class Fmt>
std::unique_ptr<HookedCalls> make_without_hooks(World& world, const Shape& shape, const ExchangeOptions& options) {
  return make_calls<HookedUnderTest<Fmt, cuda::NoHooks>, None>(world, shape, options);
}

}  // namespace

std::unique_ptr<HookedCalls> make_int8(World& world, const Shape& shape, const ExchangeOptions& options) {
  return make_without_hooks<Int8Block64>(world, shape, options);
}
std::unique_ptr<HookedCalls> make_int8_transposed(World& world, const Shape& shape, const ExchangeOptions& options) {
  return make_without_hooks<Int8Transposed>(world, shape, options);
}
std::unique_ptr<HookedCalls> make_int8_tiled(World& world, const Shape& shape, const ExchangeOptions& options) {
  return make_without_hooks<Int8Tiled>(world, shape, options);
}
std::unique_ptr<HookedCalls> make_int8_with_all(World& world, const Shape& shape, const ExchangeOptions& options) {
  return make_calls<HookedUnderTest<Int8Block64, AllHooks>, AllHooks>(world, shape, options);
}

}  // namespace ferry::test
