// RowPipeline: rows in flight through shared memory (sum_rows_pipelined), by cp.async. Loads in flight take no
// registers, so a multiprocessor can have three times as many. A few blocks need that to reach the full memory
// bandwidth. Every thread loads only what it adds itself, so no barrier is needed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/cuda/state/block_roles.h"
#include "ferry/detail/cuda/team/ptx.cuh"
#include "ferry/detail/formats/row_sum.h"

namespace ferry::cuda {

inline constexpr int kStageVectors = 4;  // of 8 columns: a thread's share of a row in one stage
inline constexpr int kStages = 6;
inline constexpr std::size_t kPipelineBytes = sizeof(uint4) * kStageVectors * kStages * kThreads;

// The stages of this warp, one behind the other: of each vector the 32 lanes' side by side.
__device__ inline uint4* warp_stages(std::byte* pipeline) {
  return reinterpret_cast<uint4*>(pipeline) + threadIdx.x / 32 * (kStages * kStageVectors * 32);
}

// The stages of a thread. One stage is always free, so a load never overwrites the stage that was read last. A new sum
// may reuse a stage, since the values of that stage are in registers by then.
class RowPipeline {
 public:
  __device__ explicit RowPipeline(std::byte* pipeline) : mine_(warp_stages(pipeline) + threadIdx.x % 32) {}

  // Loads one vector of the next stage.
  __device__ void load(int vector, const std::byte* from) { ptx::copy_to_shared(stage_at(load_stage_, vector), from); }
  // Commits a stage, which may be empty.
  __device__ void commit() {
    ptx::copies_commit();
    load_stage_ = next_stage(load_stage_);
  }
  // A vector of the oldest stage, after await().
  __device__ uint4 read(int vector) const { return *stage_at(read_stage_, vector); }
  __device__ void await() const { ptx::copies_wait<kStages - 2>(); }
  __device__ void release() { read_stage_ = next_stage(read_stage_); }

 private:
  __device__ uint4* stage_at(int stage, int vector) const { return mine_ + (stage * kStageVectors + vector) * 32; }
  __device__ static int next_stage(int stage) { return stage + 1 == kStages ? 0 : stage + 1; }

  uint4* mine_;
  int load_stage_ = 0;
  int read_stage_ = 0;
};

// The order in which a thread loads bf16 rows, in a team of `stride` / 8 threads: for each group of columns, from the
// first columns on, one row after the other.
struct LoadOrder {
  const SumRow* rows;
  int count;
  int hidden;
  int stride;
  int column;  // of this thread's first vector
  int begin = 0;
  int row = 0;

  __device__ void load_next(RowPipeline& pipeline) {
    if (begin < hidden) {
      const std::byte* from = rows[row].data;
#pragma unroll
      for (int v = 0; v < kStageVectors; ++v)
        if (begin + v * stride < hidden)
          pipeline.load(v, from + static_cast<std::size_t>(min(begin + v * stride + column, hidden - 8)) * 2);
      if (++row == count) {
        row = 0;
        begin += kStageVectors * stride;
      }
    }
    pipeline.commit();
  }
};

}  // namespace ferry::cuda
