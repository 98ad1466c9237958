// The receiving kernels of rows in other orders than by_expert, and the kernels of token lists, over NvshmemFabric.
#include "ferry/detail/cuda/launch/receive_launch.cuh"
#include "ferry/detail/nvshmem/nvshmem_puts.cuh"

namespace ferry::cuda {

template <DeviceFabric F>
ReceiveLaunchers receive_instance() {
  return receive_launchers<F>();
}
template ReceiveLaunchers receive_instance<NvshmemFabric>();

}  // namespace ferry::cuda
