// Rows that come by way of shared memory (sum_rows_pipelined). Loads that are on their way take no registers there, so
// a multiprocessor has three times as many: what a few blocks need to get at all of the memory's speed. Every thread
// loads just what it adds up itself, so nobody waits for anybody.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/cuda/policy/block_roles.h"
#include "ferry/detail/cuda/team/ptx.cuh"
#include "ferry/detail/formats/row_sum.h"

namespace ferry::cuda {

inline constexpr int kRingVectors = 4;  // of 8 columns: a thread's piece of a row
inline constexpr int kRingPieces = 6;
inline constexpr std::size_t kRingBytes = sizeof(uint4) * kRingVectors * kRingPieces * kThreads;

// A thread's pieces. One is free: what is asked for does not come where the last one was read. A new row of sums begins
// with the first piece again, whose values are in registers by then.
class RowPipeline {
 public:
  __device__ explicit RowPipeline(std::byte* pipeline) : mine_(reinterpret_cast<uint4*>(pipeline) + threadIdx.x) {}

  // One vector of the piece asked for next.
  __device__ void ask(int vector, const std::byte* from) { ptx::copy_to_shared(place(asked_, vector), from); }
  // Closes a piece; it may be empty.
  __device__ void asked() {
    ptx::copies_commit();
    asked_ = following(asked_);
  }
  // Of the oldest piece, once await() has returned.
  __device__ uint4 taken(int vector) const { return *place(taken_, vector); }
  __device__ void await() const { ptx::copies_wait<kRingPieces - 2>(); }
  __device__ void release() { taken_ = following(taken_); }

 private:
  __device__ uint4* place(int piece, int vector) const { return mine_ + (piece * kRingVectors + vector) * kThreads; }
  __device__ static int following(int piece) { return piece + 1 == kRingPieces ? 0 : piece + 1; }

  uint4* mine_;
  int asked_ = 0;
  int taken_ = 0;
};

// What a thread of a team of `stride` / 8 asks for of bf16 rows: from the first columns on, of one row after the other.
struct RingOrder {
  const SumRow* rows;
  int count;
  int hidden;
  int stride;
  int column;  // of the first vector
  int begin = 0;
  int row = 0;

  __device__ void ask_next(RowPipeline& pipeline) {
    if (begin < hidden) {
      const std::byte* from = rows[row].data;
#pragma unroll
      for (int v = 0; v < kRingVectors; ++v)
        if (begin + v * stride < hidden)
          pipeline.ask(v, from + static_cast<std::size_t>(min(begin + v * stride + column, hidden - 8)) * 2);
      if (++row == count) {
        row = 0;
        begin += kRingVectors * stride;
      }
    }
    pipeline.asked();
  }
};

}  // namespace ferry::cuda
