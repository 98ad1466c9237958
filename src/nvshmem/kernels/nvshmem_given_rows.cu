// The dispatch kernels of tokens that the caller encoded, in any format, over NvshmemFabric.
#include "ferry/detail/cuda/launch/launch.cuh"
#include "ferry/detail/nvshmem/nvshmem_puts.cuh"

namespace ferry::cuda {

template <class Maker, DeviceFabric F>
DispatchLauncher dispatch_instance() {
  return dispatch_launcher<Maker, F>();
}
template DispatchLauncher dispatch_instance<GivenRows, NvshmemFabric>();

}  // namespace ferry::cuda
