// The receiving half of a dispatch as a kernel of its own: where a call receives only, and the rows are not by_expert,
// or where rows may overflow. It follows a dispatch kernel that only sends. It moves bytes and knows no format. There
// are two for each order, one of them for rows that may overflow.
#pragma once

#include "ferry/detail/cuda/kernels/calls/call_fault.cuh"
#include "ferry/detail/cuda/kernels/dispatch_rows.cuh"

namespace ferry::cuda {

template <DeviceFabric F, RowOrder kOrder, bool kMayOverflow>
__global__ void __launch_bounds__(kThreads, 2) receive_kernel(const __grid_constant__ DispatchParams p) {
  extern __shared__ __align__(128) std::byte receive_memory[];
  const LogicalBlock logical = this_logical_block<false>(p.roles);
  const SyncedTeam all = SyncedTeam::of_block(logical.in_cta);
  auto& shared = *reinterpret_cast<DispatchMemory*>(receive_memory);
  DispatchBlock block{p, logical, all, shared, receive_memory + kDispatchSharedBytes};
  F fabric(p.links, p.plan, p.plan.map.message_bytes());
  block.await_earlier_kernels();
  if (block.begin())
    lay_out_share<F, kOrder, kMayOverflow>(block, fabric);
  else
    tell_of_other_dispatch<F>(p.links, Operation::dispatch, p.dispatch_call);
}

}  // namespace ferry::cuda
