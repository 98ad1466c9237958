// The small kernels over DirectFabric.
#include "ferry/detail/cuda/fabric/direct_fabric.cuh"
#include "ferry/detail/cuda/launch/small_launch.cuh"

namespace ferry::cuda {

template <DeviceFabric F>
SmallLaunchers small_instance() {
  return small_launchers<F>();
}
template SmallLaunchers small_instance<DirectFabric<>>();

}  // namespace ferry::cuda
