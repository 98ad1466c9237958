// The table of dispatch launchers over NvshmemFabric, and its combine kernel.
#include "nvshmem/nvshmem_launch.h"

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

template <DeviceFabric F>
CombineLauncher combine_instance() {
  return combine_launcher<F>();
}
template CombineLauncher combine_instance<NvshmemFabric>();

Launchers nvshmem_launchers() {
  static const DispatchLauncher kGivenRows = dispatch_instance<GivenRows, NvshmemFabric>();
  return {&find_dispatch, &kGivenRows, combine_instance<NvshmemFabric>(), NvshmemFabric::kName};
}

}  // namespace ferry::cuda
