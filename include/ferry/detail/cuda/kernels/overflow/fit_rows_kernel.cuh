// Two small kernels of handles that a dispatch left whose rows may have had no room (Overflow). Such a handle has the
// numbers of all rows, and in its header how many had room.
//   fit_rows_kernel   before a combine with it: makes the rows that the combine goes by, without those
//   note_room_kernel  behind a replay that copies its handle: the room is that of the replay's own outputs
#pragma once

#include <cstdint>

#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/team/ptx_launch.cuh"
#include "ferry/detail/cuda/team/team_group.cuh"
#include "ferry/detail/cuda/team/team_ops.cuh"

namespace ferry::cuda {

// Row starts of the handle, with the end that combine needs. Threads take words in turn.
__device__ inline void fit_starts(const FitRowsParams& p, std::uint32_t room, const FixedShare& threads) {
  const int end = static_cast<int>(p.from.starts.group + p.plan.groups() - p.from.starts.of_source);
  for (int i = threads.index; i < row_start_words(p.plan); i += threads.count) {
    const std::uint32_t word = p.from.starts.of_source[i];
    p.to.starts.of_source[i] = i == end ? min(word, room) : word;
  }
}

// I18: the number of tokens is a caller's.
static __global__ void __launch_bounds__(kThreads) fit_rows_kernel(const __grid_constant__ FitRowsParams p) {
  ptx::await_earlier_kernels();
  if (p.state->has_stopped()) return;
  const std::uint32_t room = p.header->row_room - 1;  // 0: all
  const FixedShare threads = threads_of_grid();
  fit_starts(p, room, threads);
  const Shape& shape = p.plan.shape;
  for (int source = 0; source < shape.ranks; ++source) {
    const int tokens = max(0, min(static_cast<int>(p.from.starts.tokens[source]), shape.max_tokens));
    const std::size_t first = static_cast<std::size_t>(source) * static_cast<std::size_t>(shape.max_tokens) *
                              static_cast<std::size_t>(shape.top_k);
    for (int i = threads.index; i < tokens * shape.top_k; i += threads.count) {
      HandleRow row = p.from.rows[first + static_cast<std::size_t>(i)];
      if (row.row >= room) row.row = kNoRow;
      p.to.rows[first + static_cast<std::size_t>(i)] = row;
    }
  }
}

static __global__ void __launch_bounds__(SyncedTeam::kWidth)
    note_room_kernel(const __grid_constant__ NoteRoomParams p) {
  ptx::await_earlier_kernels();
  if (threadIdx.x == 0 && !p.state->has_stopped()) p.header->row_room = p.row_room;
}

}  // namespace ferry::cuda
