// The launcher of the combine kernels of rows, bias or sums that are f16. They have no pipeline.
#pragma once

#include <algorithm>

#include "ferry/detail/cuda/kernels/launch.cuh"
#include "ferry/detail/cuda/team/half_ops.cuh"

namespace ferry::cuda {

template <DeviceFabric F, TokenFormat Results>
CombineLauncher half_combine_launcher() {
  using Ops = HalfOps<Results>;
  return {[](int threads, std::size_t shared_bytes, std::size_t) {
            return std::min(prepare_kernel(&combine_kernel<F, false, false, Ops>, threads, shared_bytes),
                            prepare_kernel(&combine_kernel<F, false, true, Ops>, threads, shared_bytes));
          },
          [](const CombineParams& params, const CombinePolicy& policy, std::size_t shared_bytes, cudaStream_t stream) {
            const Grid grid{policy.blocks, policy.pdl, shared_bytes};
            if (params.is_extra) return launch(&combine_kernel<F, false, true, Ops>, params, grid, stream);
            launch(&combine_kernel<F, false, false, Ops>, params, grid, stream);
          },
          false};
}

// The library's. A source for each format of results defines it (half_combine_instance.cu.in).
template <TokenFormat Results>
CombineLauncher half_combine_instance();

}  // namespace ferry::cuda
