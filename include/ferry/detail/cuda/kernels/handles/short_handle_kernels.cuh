// Kernels of short handles in device memory, as exchange/handles/short_handle.h. They wait only for the kernel before
// them.
//   lengthen_own_kernel   ahead of a call that is given one: all of the whole handle but what messages say
//   lengthen_rows_kernel  behind it: rows and slots
//   count_kept_kernel     behind a dispatch that leaves one, and the whole handle: messages and rows of each chunk
//   shorten_kernel        the short handle
#pragma once

#include "ferry/detail/cuda/steps/short_handle.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"
#include "ferry/detail/cuda/team/team_ops.cuh"

namespace ferry::cuda {

static __global__ void __launch_bounds__(kThreads) lengthen_own_kernel(const __grid_constant__ LengthenParams p) {
  ptx::await_earlier_kernels();
  if (p.state->has_stopped()) return;
  const HandleHeader header = *reinterpret_cast<const HandleHeader*>(p.from);
  const FixedShare threads = threads_of_grid();
  if (threads.index == 0) *kept_routing_at(p.plan, p.to).header = header_to_check(p, header);
  if (is_whole_inside(p, header)) lengthen_own(p, header, threads);
}

static __global__ void __launch_bounds__(kThreads) lengthen_rows_kernel(const __grid_constant__ LengthenParams p) {
  ptx::await_earlier_kernels();
  if (p.state->has_stopped()) return;
  const HandleHeader header = *reinterpret_cast<const HandleHeader*>(p.from);
  if (!is_whole_inside(p, header)) return;
  const FixedShare block{static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)};
  spread_messages(p, header, teams_of(32, block));
}

static __global__ void __launch_bounds__(kThreads) count_kept_kernel(const __grid_constant__ ShortenParams p) {
  extern __shared__ __align__(16) std::byte message_memory[];
  ptx::await_earlier_kernels();
  const SyncedTeam all = SyncedTeam::of_block();
  if (!all.all(!p.state->has_stopped())) return;
  const KeptRouting whole = kept_routing_at(p.plan, p.from);
  const int chunks = p.plan.shape.ranks * chunks_of_source(p.plan);
  for (int chunk = static_cast<int>(blockIdx.x); chunk < chunks; chunk += static_cast<int>(gridDim.x)) {
    const ChunkCount mine = ChunkCount::of(entries_with_row(p.plan, whole, token_in_chunk(p.plan, chunk)));
    const std::uint32_t sum = sum_of_block(all, mine.word, *reinterpret_cast<MessageMemory*>(message_memory));
    if (all.thread() == 0) p.chunk_counts[chunk] = sum;
  }
}

static __global__ void __launch_bounds__(kThreads) shorten_kernel(const __grid_constant__ ShortenParams p) {
  extern __shared__ __align__(16) std::byte message_memory[];
  ptx::await_earlier_kernels();
  const SyncedTeam all = SyncedTeam::of_block();
  if (!all.all(!p.state->has_stopped())) return;
  auto& memory = *reinterpret_cast<MessageMemory*>(message_memory);
  const KeptRouting whole = kept_routing_at(p.plan, p.from);
  const int chunks = p.plan.shape.ranks * chunks_of_source(p.plan);
  Kept kept = kept_before(p, all, chunks, memory);
  kept.tokens = kept_by(p.plan, *whole.header).tokens;
  if (!has_room(p, kept, all)) return;
  const ShortHandle to = short_handle_at(p.plan, p.to, kept);
  for (int chunk = static_cast<int>(blockIdx.x); chunk < chunks; chunk += static_cast<int>(gridDim.x))
    shorten_chunk(p, whole, to, all, chunk, memory);
  shorten_own(p, whole, to, kept, threads_of_grid());
}

}  // namespace ferry::cuda
