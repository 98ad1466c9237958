// Kernels behind a dispatch with extra outputs (WorldCapabilities::more_outputs). They read what the dispatch left in
// the memory of the exchange, and wait only for the kernel before them.
//   more_rows_kernel       facts of rows, counts, and padding
//   count_messages_kernel  messages of each chunk of tokens
//   list_messages_kernel   the messages, and the first one of each source
#pragma once

#include "ferry/detail/cuda/steps/more_rows.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"

namespace ferry::cuda {

static __global__ void __launch_bounds__(kThreads) more_rows_kernel(const __grid_constant__ MoreRowsParams p) {
  ptx::await_earlier_kernels();
  write_more_rows(p);
}

static __global__ void __launch_bounds__(kThreads) count_messages_kernel(const __grid_constant__ MoreRowsParams p) {
  extern __shared__ __align__(16) std::byte message_memory[];
  ptx::await_earlier_kernels();
  const SyncedTeam all = SyncedTeam::of_block();
  if (!all.all(!p.state->has_stopped())) return;
  const DispatchLeft left{p, load_relaxed(p.state->dispatched), room_of(p.out)};
  const int chunks = p.plan.shape.ranks * chunks_of_source(p.plan);
  for (int chunk = static_cast<int>(blockIdx.x); chunk < chunks; chunk += static_cast<int>(gridDim.x)) {
    const std::uint32_t count = messages_in_chunk(left, all, chunk, *reinterpret_cast<MessageMemory*>(message_memory));
    if (all.thread() == 0) p.message_counts[chunk] = count;
  }
}

static __global__ void __launch_bounds__(kThreads) list_messages_kernel(const __grid_constant__ MoreRowsParams p) {
  extern __shared__ __align__(16) std::byte message_memory[];
  ptx::await_earlier_kernels();
  const SyncedTeam all = SyncedTeam::of_block();
  if (!all.all(!p.state->has_stopped())) return;
  auto& memory = *reinterpret_cast<MessageMemory*>(message_memory);
  const DispatchLeft left{p, load_relaxed(p.state->dispatched), room_of(p.out)};
  const FixedShare block{static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)};
  const int chunks = p.out.messages == nullptr ? 0 : p.plan.shape.ranks * chunks_of_source(p.plan);
  for (int chunk = block.index; chunk < chunks; chunk += block.count) list_chunk(left, all, chunk, memory);
  end_messages(left, all, block, memory);
}

}  // namespace ferry::cuda
