// Teams of threads as ThreadGroups. Teams of a block work on different tokens, so that one computes while another
// waits.
//   SyncedTeam     consecutive warps of a thread block that meet at barriers
//   WarpwiseTeam   for work in which no warp reads what another warp wrote: warps do not meet
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/cuda/state/block_roles.h"
#include "ferry/detail/cuda/team/ptx.cuh"
#include "ferry/formats/thread_group.h"

namespace ferry::cuda {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// For the number of threads of a team, a power of two. A division by it would take some 20 instructions.
__device__ inline int log2_of(int threads) { return 31 - __clz(threads); }

class SyncedTeam {
 public:
  static constexpr int kWidth = 32;  // threads that exchange values without a barrier

  // All threads of the logical block; `in_cta` as in LogicalBlock.
  __device__ static SyncedTeam of_block(int in_cta = 0) {
    SyncedTeam all;
    all.barrier_ = in_cta * kBarriersOfFirst;
    return all;
  }
  // The team of `threads` threads that this thread is in. A thread block has 16 barriers, and a team of one warp needs
  // none. So the first logical block of a thread block has a barrier for every team, and the second one for every team
  // of kLeastTeamOfSecond threads or more.
  // `pipeline`: the block's shared memory for rows in flight (row_pipeline.cuh); null: rows go through registers.
  __device__ explicit SyncedTeam(int threads, std::byte* pipeline = nullptr, int in_cta = 0)
      : team_(static_cast<int>(threadIdx.x) >> log2_of(threads)),
        barrier_(in_cta * kBarriersOfFirst + 1 + team_),
        first_(static_cast<int>(threadIdx.x) & -threads),
        threads_(threads),
        pipeline_(pipeline) {}

  static constexpr int last_barrier() { return kBarriersOfFirst + kThreads / kLeastTeamOfSecond; }
  __device__ int team() const { return team_; }
  __device__ std::byte* pipeline() const { return pipeline_; }
  __device__ int thread() const { return static_cast<int>(threadIdx.x) - first_; }
  __device__ int size() const { return threads_; }
  __device__ void sync() const {
    if (threads_ == kWidth)
      __syncwarp();
    else
      ptx::team_sync(barrier_, threads_);
  }
  // All threads get the same answer. It is also a barrier. Lanes of a warp may arrive diverged, and leave together.
  __device__ bool all(bool value) const {
    __syncwarp();
    if (threads_ != kWidth) return ptx::team_all(barrier_, threads_, value);
    return ptx::warp_all(value);
  }
  __device__ bool any(bool value) const { return !all(!value); }

  template <int kThreads>
  __device__ std::uint32_t max_over(std::uint32_t value) const {
    for (int distance = kThreads / 2; distance > 0; distance /= 2) {
      const std::uint32_t other = __shfl_xor_sync(kAllLanes, value, static_cast<unsigned>(distance));
      value = other > value ? other : value;
    }
    return value;
  }

 private:
  static constexpr int kBarriersOfFirst = 1 + kThreads / (2 * kWidth);
  static constexpr int kLeastTeamOfSecond = 128;

  __device__ SyncedTeam() : team_(0), barrier_(0), first_(0), threads_(kThreads) {}

  int team_;
  int barrier_;
  int first_;
  int threads_;
  std::byte* pipeline_ = nullptr;
};
static_assert(ThreadGroup<SyncedTeam>);
static_assert(kLeastTeamThreads == SyncedTeam::kWidth && SyncedTeam::last_barrier() < 16,
              "teams of more than a warp have a barrier each");

// The columns of a token are shared out as in a SyncedTeam, but every warp loads and waits on its own: sync()
// synchronises a warp only, and each warp has a scratch of its own. So a team may also be several blocks with
// consecutive indices.
class WarpwiseTeam {
 public:
  static constexpr int kWidth = 32;

  // `block`: this block's index among those that share the work. `pipeline`: as in SyncedTeam.
  __device__ WarpwiseTeam(int threads, int block, std::byte* pipeline = nullptr)
      : thread_((block * kThreads + static_cast<int>(threadIdx.x)) & (threads - 1)),
        threads_(threads),
        pipeline_(pipeline) {}

  // The same team, from what thread() and size() say. It has no pipeline.
  __device__ static WarpwiseTeam of_thread(int thread, int threads) {
    WarpwiseTeam team(threads, 0);
    team.thread_ = thread;
    return team;
  }

  __device__ std::byte* pipeline() const { return pipeline_; }
  __device__ int thread() const { return thread_; }
  __device__ int size() const { return threads_; }
  __device__ int lane() const { return static_cast<int>(threadIdx.x) % kWidth; }
  __device__ bool is_first_warp() const { return thread_ < kWidth; }
  __device__ void sync() const { __syncwarp(); }
  __device__ SyncedTeam warp() const { return SyncedTeam(kWidth); }

  template <int kThreads>
  __device__ std::uint32_t max_over(std::uint32_t value) const {
    return warp().max_over<kThreads>(value);
  }

 private:
  int thread_;
  int threads_;
  std::byte* pipeline_;
};
static_assert(ThreadGroup<WarpwiseTeam>);

}  // namespace ferry::cuda
