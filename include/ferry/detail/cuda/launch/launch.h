// Launchers of the kernels: plain functions, so that callers are compiled without the kernels. There is one launcher of
// dispatch for each token format, and one for tokens that the caller encoded, compiled ahead of time or in a user's own
// source (compiled_exchange.cuh).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "ferry/detail/cuda/state/block_roles.h"
#include "ferry/detail/cuda/state/kernel_params.h"

namespace ferry::cuda {

struct DispatchLauncher {
  // Loads the kernels of rows in these orders on the current device, and raises their limits of shared memory. Returns
  // the blocks per multiprocessor.
  int (*prepare)(int threads, std::size_t shared_bytes, RowOrders orders);
  // The same for the kernels whose thread blocks hold two logical blocks, each of so many threads and bytes. Returns
  // false where there is no such kernel, or where it does not fit.
  bool (*prepare_paired)(int threads, std::size_t shared_bytes, RowOrders orders);
  void (*launch)(const DispatchParams& params, const DispatchPolicy& policy, cudaStream_t stream);
};

struct CombineLauncher {
  // Loads the kernels on the current device: `weighed` those beside whose results weights travel, else all others.
  // `pipeline_bytes`: the shared memory of the pipelined kernel, which loads rows into shared memory ahead of their
  // use; 0 where it is not wanted. Returns the blocks per multiprocessor.
  int (*prepare)(int threads, std::size_t shared_bytes, std::size_t pipeline_bytes, bool weighed);
  void (*launch)(const CombineParams& params, const CombinePolicy& policy, std::size_t shared_bytes,
                 cudaStream_t stream);
  bool has_pipeline = false;
  bool copies_rows = false;  // it has a pipelined kernel that copies results of one row; GPUs before Hopper cannot
};

// The small kernels over one fabric that write at other ranks, or wait for them (small_launch.cuh). Small kernels that
// do neither are functions of this header.
struct SmallLaunchers {
  void (*prepare)(const Plan& plan);  // loads them on the current device
  // Before a call that is given a handle, or a combine that may not follow its dispatch at once. `pdl`: as of
  // LaunchPolicy.
  void (*begin_handle)(const HandleCallParams& params, bool pdl, cudaStream_t stream);
  // Of a dispatch whose host asks what comes (count_kernel.cuh).
  void (*count)(const CountParams& params, cudaStream_t stream);
  void (*tell_excess)(const ExcessParams& params, cudaStream_t stream);
  // When the host has thrown for a dispatch that was refused (refused_dispatch.cuh).
  void (*forget_refused)(const ForgetRefusedParams& params, cudaStream_t stream);
  // Before a combine whose dispatch may have had no room for some rows (zero_results_kernel.cuh).
  void (*send_zeros)(const ZeroResultsParams& params, int most_blocks, cudaStream_t stream);
  // Before a dispatch by counts (give_counts_kernel.cuh). Loaded where rows may be by_source.
  void (*give_counts)(const GiveCountsParams& params, int most_blocks, cudaStream_t stream);
};

// The most blocks of a kernel that finishes a dispatch.
struct FinishGrid {
  int small_blocks = 1;   // of a part that waits for no rank
  int scales_blocks = 1;  // of the scales
  bool pdl = false;       // LaunchPolicy
};

// The kernels over one fabric that lay rows out apart from the kernel that sends: rows that may overflow, and in halves
// rows in other orders than by_expert. And the kernels of what is left behind a dispatch (receive_launch.cuh).
struct ReceiveLaunchers {
  // Loads them on the current device. Kernels for rows by_source, and of token lists, only where rows may be by_source.
  void (*prepare)(const Plan& plan);
  // `policy`: for DispatchKernel::receives: a logical block is a thread block, else there are twice as many as there is
  // room for, and kernels that wait for each other never get any (I21).
  void (*receive)(const DispatchParams& params, const DispatchPolicy& policy, cudaStream_t stream);
  // Behind the kernel of a dispatch: what is left, by one kernel; by none where nothing is.
  void (*finish)(const FinishParams& params, const FinishGrid& grid, cudaStream_t stream);
  // Waits for the lists of remote ranks.
  void (*await_lists)(const TokenListParams& params, cudaStream_t stream);
};

// The kernels over one fabric.
struct Launchers {
  const DispatchLauncher* (*find_dispatch)(const char* format);  // null where this build has no kernel for the format
  const DispatchLauncher* given_rows;                            // of tokens that the caller encoded, in any format
  // Null where this build has no kernel for results in the format.
  const CombineLauncher* (*find_combine)(const char* result_format);
  const SmallLaunchers* small;
  const ReceiveLaunchers* receive;
  const char* fabric;  // its name (DeviceFabric): a world refuses kernels over the fabric of another transport
  // With dynamic_scales: `scaling` encodes tokens, `given_scaled_rows` sends encoded ones. Null where a build has none.
  const DispatchLauncher* scaling = nullptr;
  const DispatchLauncher* given_scaled_rows = nullptr;
  // Combines with rows, bias or sums of f16. Null where a build has none, as with hooks.
  const CombineLauncher* (*find_f16_combine)(const char* result_format) = nullptr;
  bool of_program = false;  // a program compiled them, with its hooks in them
};
// Over DirectFabric, which reaches direct ranks only.
Launchers direct_launchers();

// Loads the scales kernel on the current device. Returns its blocks per multiprocessor, or 0 where a block of the
// device has too little shared memory for it.
int prepare_scales(const Plan& plan);
std::size_t scales_shared_bytes(const Plan& plan);
void launch_scales(const ScalesParams& params, int blocks, bool pdl, cudaStream_t stream);

// Loads the kernels of extra outputs on the current device.
void prepare_more_rows();
int more_rows_blocks(const Plan& plan, int most_blocks);
void launch_more_rows(const MoreRowsParams& params, int most_blocks, cudaStream_t stream);
// `messages` and the first message of each source.
void launch_messages(const MoreRowsParams& params, int most_blocks, cudaStream_t stream);
// Behind all others of a dispatch whose rows may overflow (forget_rows_kernel.cuh).
void launch_forget_rows(const MoreRowsParams& params, int most_blocks, cudaStream_t stream);
// Of handles of such dispatches (fit_rows_kernel.cuh).
void launch_fit_rows(const FitRowsParams& params, int most_blocks, cudaStream_t stream);
void launch_note_room(const NoteRoomParams& params, cudaStream_t stream);
// Behind a combine whose waits are asked for (add_waits_kernel.cuh).
void launch_add_waits(const AddWaitsParams& params, cudaStream_t stream);
// Behind a dispatch by counts (take_counts_kernel.cuh).
void launch_take_counts(const TakeCountsParams& params, cudaStream_t stream);

// Loads the kernel of dispatches that leave a handle on the current device.
void prepare_keep_routing();
int keep_routing_blocks(const Plan& plan, int most_blocks);
void launch_keep_routing(const KeepParams& params, int most_blocks, bool pdl, cudaStream_t stream);

// Loads the kernels of short handles on the current device (short_handle_kernels.cuh).
void prepare_short_handles();
void launch_lengthen(const LengthenParams& params, int most_blocks, cudaStream_t stream);
void launch_shorten(const ShortenParams& params, int most_blocks, cudaStream_t stream);

// Loads the kernels of dispatches with a handle where some rank is masked on the current device.
void prepare_masked_sources();
void launch_stand_in(const StandInParams& params, cudaStream_t stream);
void launch_pad_masked(const PadMaskedParams& params, int most_blocks, cudaStream_t stream);

// Shared memory of a block in whole lines: a fixed part, and the largest that one of its roles needs. `teams` teams of
// the block send.
std::size_t dispatch_shared_bytes(const Plan& plan, int teams);
std::size_t by_source_shared_bytes(const Plan& plan, int teams);  // of a whole dispatch, which lists tokens
std::size_t combine_shared_bytes(const Plan& plan);
std::size_t combine_pipeline_bytes();  // of the pipelined combine, for any plan
// How many teams of a block have a buffer for messages (or results): a power of two, up to kMostTeams.
int dispatch_buffer_teams(const Plan& plan);
int combine_buffer_teams(const Plan& plan);
// How many words, of a bit for each of 32 tokens, a routing block has room for.
int routing_words(const Plan& plan);

}  // namespace ferry::cuda
