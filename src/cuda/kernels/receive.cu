// The receiving kernels of rows that are padded or in_place.
#include "ferry/detail/cuda/fabric/direct_fabric.cuh"
#include "ferry/detail/cuda/kernels/launch.cuh"
#include "ferry/detail/cuda/kernels/receive_kernel.cuh"

namespace ferry::cuda {

using ReceiveKernel = void (*)(DispatchParams);
static constexpr ReceiveKernel kPadded = &receive_kernel<DirectFabric<>, RowOrder::padded>;
static constexpr ReceiveKernel kInPlace = &receive_kernel<DirectFabric<>, RowOrder::in_place>;

void prepare_receive_kernels(std::size_t shared_bytes) {
  prepare_kernel(kPadded, kThreads, shared_bytes);
  prepare_kernel(kInPlace, kThreads, shared_bytes);
}

void launch_receive(const DispatchParams& params, const DispatchPolicy& policy, cudaStream_t stream) {
  const ReceiveKernel kernel = params.out.order == RowOrder::padded ? kPadded : kInPlace;
  launch(kernel, params, {policy.blocks, policy.pdl, params.block_bytes}, stream);
}

}  // namespace ferry::cuda
