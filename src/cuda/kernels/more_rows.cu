// The kernels of outputs that a call may leave out.
#include <algorithm>

#include "ferry/detail/cuda/kernels/add_waits_kernel.cuh"
#include "ferry/detail/cuda/kernels/counts/take_counts_kernel.cuh"
#include "ferry/detail/cuda/kernels/more_rows_kernels.cuh"
#include "ferry/detail/cuda/kernels/overflow/fit_rows_kernel.cuh"
#include "ferry/detail/cuda/kernels/overflow/forget_rows_kernel.cuh"
#include "ferry/detail/cuda/launch/launch.cuh"

namespace ferry::cuda {

void prepare_more_rows() {
  prepare_kernel(&more_rows_kernel, kThreads, 0);
  prepare_kernel(&count_messages_kernel, kThreads, sizeof(MessageMemory));
  prepare_kernel(&list_messages_kernel, kThreads, sizeof(MessageMemory));
  prepare_kernel(&forget_rows_kernel, kThreads, 0);
  prepare_kernel(&fit_rows_kernel, kThreads, 0);
  prepare_kernel(&note_room_kernel, SyncedTeam::kWidth, 0);
  prepare_kernel(&take_counts_kernel, kThreads, 0);
  prepare_kernel(&add_waits_kernel, SyncedTeam::kWidth, 0);
}

int more_rows_blocks(const Plan& plan, int most_blocks) { return grid_of_tokens(plan, most_blocks).blocks; }
void launch_more_rows(const MoreRowsParams& params, int most_blocks, cudaStream_t stream) {
  launch(&more_rows_kernel, params, grid_of_tokens(params.plan, most_blocks), stream);
}
void launch_forget_rows(const MoreRowsParams& params, int most_blocks, cudaStream_t stream) {
  launch(&forget_rows_kernel, params, grid_of_tokens(params.plan, most_blocks), stream);
}
void launch_fit_rows(const FitRowsParams& params, int most_blocks, cudaStream_t stream) {
  launch(&fit_rows_kernel, params, grid_of_tokens(params.plan, most_blocks), stream);
}
void launch_note_room(const NoteRoomParams& params, cudaStream_t stream) {
  launch(&note_room_kernel, params, {.threads = SyncedTeam::kWidth}, stream);
}
void launch_add_waits(const AddWaitsParams& params, cudaStream_t stream) {
  launch(&add_waits_kernel, params, {.threads = SyncedTeam::kWidth}, stream);
}
void launch_take_counts(const TakeCountsParams& params, cudaStream_t stream) {
  launch(&take_counts_kernel, params, {}, stream);
}

void launch_messages(const MoreRowsParams& params, int most_blocks, cudaStream_t stream) {
  const int chunks = params.plan.shape.ranks * message_chunks(params.plan.shape.max_tokens);
  const Grid grid{.blocks = std::min(chunks, most_blocks), .shared_bytes = sizeof(MessageMemory)};
  if (params.out.order != RowOrder::by_source) launch(&count_messages_kernel, params, grid, stream);
  launch(&list_messages_kernel, params, grid, stream);
}

}  // namespace ferry::cuda
