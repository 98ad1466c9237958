// The small kernels over NvshmemFabric.
#include "ferry/detail/cuda/launch/small_launch.cuh"
#include "ferry/detail/nvshmem/nvshmem_puts.cuh"

namespace ferry::cuda {

template <DeviceFabric F>
SmallLaunchers small_instance() {
  return small_launchers<F>();
}
template SmallLaunchers small_instance<NvshmemFabric>();

}  // namespace ferry::cuda
