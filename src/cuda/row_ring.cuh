// Sums of rows that come by way of shared memory. Loads that are on their way take no registers there, so a
// multiprocessor has three times as many: what a few blocks need to get at all of the memory's speed. Every thread
// loads just what it adds up itself, so nobody waits for anybody.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/ptx.cuh"
#include "cuda/tuning.h"
#include "ferry/thread_group.h"
#include "shared/row_sum.h"

namespace ferry::cuda {

inline constexpr int kRingVectors = 4;  // of 8 columns: a thread's piece of a row
inline constexpr int kRingPieces = 6;
inline constexpr std::size_t kRingBytes = sizeof(uint4) * kRingVectors * kRingPieces * kThreads;

// A thread's pieces. One is free: what is asked for does not come where the last one was read. A new row of sums begins
// with the first piece again, whose values are in registers by then.
class RowRing {
 public:
  __device__ explicit RowRing(std::byte* ring) : mine_(reinterpret_cast<uint4*>(ring) + threadIdx.x) {}

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

  __device__ void ask_next(RowRing& ring) {
    if (begin < hidden) {
      const std::byte* from = rows[row].data;
#pragma unroll
      for (int v = 0; v < kRingVectors; ++v)
        if (begin + v * stride < hidden)
          ring.ask(v, from + static_cast<std::size_t>(min(begin + v * stride + column, hidden - 8)) * 2);
      if (++row == count) {
        row = 0;
        begin += kRingVectors * stride;
      }
    }
    ring.asked();
  }
};

__device__ inline void add_eight(float (&sum)[8], float weight, uint4 columns) {
  const std::uint32_t words[4] = {columns.x, columns.y, columns.z, columns.w};
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    const std::uint32_t bits = c % 2 == 0 ? words[c / 2] << 16 : words[c / 2] & 0xFFFF0000u;
    sum[c] = __fadd_rn(sum[c], __fmul_rn(weight, __uint_as_float(bits)));
  }
}

// `count` bf16 rows, one at least. The operations of ferry::sum_rows in their order. `store(column, sum)` takes eight.
template <ThreadGroup G, class Store>
__device__ void sum_rows_by_ring(const G& g, const SumRow* rows, int count, int hidden, const Store& store) {
  const int stride = g.size() * 8;
  const int column = g.thread() * 8;
  RowRing ring(g.ring());
  RingOrder order{rows, count, hidden, stride, column};
#pragma unroll 1
  for (int i = 0; i < kRingPieces - 1; ++i) order.ask_next(ring);
#pragma unroll 1
  for (int begin = 0; begin < hidden; begin += kRingVectors * stride) {
    float sum[kRingVectors][8] = {};
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      ring.await();
      const float weight = rows[i].weight;
#pragma unroll
      for (int v = 0; v < kRingVectors; ++v) add_eight(sum[v], weight, ring.taken(v));
      ring.release();
      order.ask_next(ring);
    }
#pragma unroll
    for (int v = 0; v < kRingVectors; ++v)
      if (begin + v * stride + column < hidden) store(begin + v * stride + column, sum[v]);
  }
}

}  // namespace ferry::cuda
