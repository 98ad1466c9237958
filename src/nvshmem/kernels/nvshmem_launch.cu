// The tables of launchers over NvshmemFabric.
#include "nvshmem/kernels/nvshmem_launch.h"

#include "ferry/detail/cuda/launch/half_launch.cuh"
#include "ferry/detail/cuda/launch/launch.cuh"
#include "ferry/detail/cuda/team/scaled_messages.cuh"
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

Launchers nvshmem_launchers() {
  static const DispatchLauncher kGivenRows = dispatch_instance<GivenRows, NvshmemFabric>();
  static const SmallLaunchers kSmall = small_instance<NvshmemFabric>();
  static const ReceiveLaunchers kReceive = receive_instance<NvshmemFabric>();
  static const DispatchLauncher kScaling = dispatch_instance<ScalingEncoder<Nvfp4>, NvshmemFabric>();
  static const DispatchLauncher kGivenScaledRows = dispatch_instance<GivenScaledRows, NvshmemFabric>();
  return {&find_dispatch, &kGivenRows,       &find_combine_instance<NvshmemFabric>,
          &kSmall,        &kReceive,         NvshmemFabric::kName,
          &kScaling,      &kGivenScaledRows, &find_half_combine_instance<NvshmemFabric>};
}

}  // namespace ferry::cuda
