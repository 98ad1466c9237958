// The receiving kernels of rows in other orders than by_expert, and the kernels of token lists, over DirectFabric.
#include "ferry/detail/cuda/fabric/direct_fabric.cuh"
#include "ferry/detail/cuda/launch/receive_launch.cuh"

namespace ferry::cuda {

template <DeviceFabric F>
ReceiveLaunchers receive_instance() {
  return receive_launchers<F>();
}
template ReceiveLaunchers receive_instance<DirectFabric<>>();

}  // namespace ferry::cuda
