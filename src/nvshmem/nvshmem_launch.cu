// The table of dispatch launchers over NvshmemFabric, and its combine kernel: results are bf16.
#include "nvshmem/nvshmem_launch.h"

#include <string_view>

#include "ferry/detail/cuda/kernels/launch.cuh"
#include "ferry/detail/formats/format_list.h"
#include "ferry/detail/nvshmem/nvshmem_puts.cuh"

namespace ferry::cuda {
namespace {

const DispatchLauncher* find_dispatch(const char* format) {
  static const auto kLaunchers =
      Formats::table([]<class F>(std::type_identity<F>) { return dispatch_instance<Encoder<F>, NvshmemFabric>(); });
  return find_format(kLaunchers, format);
}

}  // namespace

template <TokenFormat Results, DeviceFabric F>
CombineLauncher combine_instance() {
  return combine_launcher<F, Results>();
}
template CombineLauncher combine_instance<Bf16, NvshmemFabric>();

Launchers nvshmem_launchers() {
  static const DispatchLauncher kGivenRows = dispatch_instance<GivenRows, NvshmemFabric>();
  static const CombineLauncher kCombine = combine_instance<Bf16, NvshmemFabric>();
  static const SmallLaunchers kSmall = small_instance<NvshmemFabric>();
  return {
      &find_dispatch, &kGivenRows,
      [](const char* result_format) { return std::string_view(result_format) == Bf16::name() ? &kCombine : nullptr; },
      &kSmall, NvshmemFabric::kName};
}

}  // namespace ferry::cuda
