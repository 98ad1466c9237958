// The dispatch kernels of tokens that the caller encoded, in any format, over DirectFabric.
#include "ferry/detail/cuda/fabric/direct_fabric.cuh"
#include "ferry/detail/cuda/launch/launch.cuh"

namespace ferry::cuda {

template <class Maker, DeviceFabric F>
DispatchLauncher dispatch_instance() {
  return dispatch_launcher<Maker, F>();
}
template DispatchLauncher dispatch_instance<GivenRows, DirectFabric<>>();

}  // namespace ferry::cuda
