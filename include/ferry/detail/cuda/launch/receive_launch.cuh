// The launchers of the receiving kernels over a fabric, and of what is left behind a dispatch.
#pragma once

#include <algorithm>

#include "ferry/detail/cuda/kernels/finish_rows_kernel.cuh"
#include "ferry/detail/cuda/kernels/receive_kernel.cuh"
#include "ferry/detail/cuda/launch/launch.cuh"

namespace ferry::cuda {

using ReceiveKernel = void (*)(DispatchParams);

template <DeviceFabric F, bool kMayOverflow>
ReceiveKernel receive_kernel_of_order(RowOrder order) {
  if (order == RowOrder::padded) return &receive_kernel<F, RowOrder::padded, kMayOverflow>;
  if (order == RowOrder::by_source) return &receive_kernel<F, RowOrder::by_source, kMayOverflow>;
  return &receive_kernel<F, RowOrder::in_place, kMayOverflow>;
}
template <DeviceFabric F>
ReceiveKernel receive_kernel_of(RowOrder order, bool may_overflow) {
  if (!may_overflow) return receive_kernel_of_order<F, false>(order);
  if (order == RowOrder::by_expert) return &receive_kernel<F, RowOrder::by_expert, true>;
  return receive_kernel_of_order<F, true>(order);
}

// by_source: the first rows of all sources lie behind the row starts. Rows that may overflow: all of it twice.
inline std::size_t receive_bytes(const Plan& plan, RowOrder order, bool may_overflow) {
  const std::size_t words = static_cast<std::size_t>(place_words(plan)) * sizeof(std::uint32_t);
  if (may_overflow) return kDispatchSharedBytes + 2 * HeapMap::whole_lines(words);
  const std::size_t offsets = static_cast<std::size_t>(plan.shape.ranks + 1) * sizeof(std::uint32_t);
  return dispatch_shared_bytes(plan, 0) + (order == RowOrder::by_source ? HeapMap::whole_lines(offsets) : 0);
}

template <DeviceFabric F>
void prepare_receive(const Plan& plan) {
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::padded, RowOrder::in_place, RowOrder::by_source})
    for (const bool may_overflow : {false, true})
      if ((order != RowOrder::by_source || plan.map.has_token_lists()) &&
          (order != RowOrder::by_expert || may_overflow))
        prepare_kernel(receive_kernel_of<F>(order, may_overflow), kThreads, receive_bytes(plan, order, may_overflow));
  prepare_kernel(&finish_rows_kernel<F>, kThreads,
                 std::max(sizeof(TokenListMemory), prepare_scales(plan) != 0 ? scales_shared_bytes(plan) : 0));
  if (!plan.map.has_token_lists()) return;
  prepare_kernel(&token_list_kernel<F>, kThreads, sizeof(TokenListMemory));
  prepare_kernel(&await_lists_kernel<F>, kAwaitListsThreads, 0);
}

// One part, by its own kernel.
template <DeviceFabric F>
void finish_part(const FinishParams& p, const FinishGrid& grid, cudaStream_t stream) {
  if (p.has_scales) return launch_scales(p.scales, grid.scales_blocks, grid.pdl, stream);
  if (p.has_kept) return launch_keep_routing(p.kept, grid.small_blocks, grid.pdl, stream);
  if (p.has_rows) return launch_more_rows(p.rows, grid.small_blocks, stream);
  const int blocks = std::min(p.lists.plan.shape.ranks, grid.small_blocks);
  launch(&token_list_kernel<F>, p.lists, {blocks, grid.pdl, sizeof(TokenListMemory)}, stream);
}

template <DeviceFabric F>
void finish_dispatch(const FinishParams& p, const FinishGrid& grid, cudaStream_t stream) {
  if (p.parts() == 0) return;
  if (p.parts() == 1) return finish_part<F>(p, grid, stream);
  const Plan& plan = p.lists.plan;
  const int blocks =
      std::max({p.has_lists ? std::min(plan.shape.ranks, grid.small_blocks) : 0, p.has_scales ? grid.scales_blocks : 0,
                p.has_kept ? keep_routing_blocks(plan, grid.small_blocks) : 0,
                p.has_rows ? more_rows_blocks(plan, grid.small_blocks) : 0});
  const std::size_t bytes =
      std::max(p.has_lists ? sizeof(TokenListMemory) : 0, p.has_scales ? scales_shared_bytes(plan) : 0);
  launch(&finish_rows_kernel<F>, p, {blocks, grid.pdl, bytes}, stream);
}

template <DeviceFabric F>
ReceiveLaunchers receive_launchers() {
  return {&prepare_receive<F>,
          [](const DispatchParams& params, const DispatchPolicy& policy, cudaStream_t stream) {
            const RowsOut& out = params.out;
            const Grid grid{policy.blocks, policy.pdl, receive_bytes(params.plan, out.order, out.may_overflow)};
            launch(receive_kernel_of<F>(out.order, out.may_overflow), params, grid, stream);
          },
          &finish_dispatch<F>,
          [](const TokenListParams& params, cudaStream_t stream) {
            launch(&await_lists_kernel<F>, params, {.threads = kAwaitListsThreads}, stream);
          }};
}

}  // namespace ferry::cuda
