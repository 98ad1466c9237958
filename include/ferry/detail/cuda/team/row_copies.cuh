// Rows that a warp copies as they are. It loads a row piece by piece into shared memory and sends each piece on by a
// bulk copy. So several pieces are in flight, and no thread waits for a store. A few blocks need that to fill the
// links, and to write rows as fast as a multiprocessor can.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/base/order.h"
#include "ferry/detail/cuda/team/row_pipeline.cuh"
#include "ferry/detail/cuda/team/team_ops.cuh"
#include "ferry/detail/layout/heap_map.h"

namespace ferry::cuda {

// Results of a combine: pieces of several rows are in flight. Every lane has one piece of 32: its bulk copy, and the
// signal of the row that it ends. A release waits for all that its warp has in flight, loads too, so the signals of
// several rows share one.
class ResultCopies {
 public:
  // `pipeline`: the block's, whose stages the pieces take.
  __device__ explicit ResultCopies(std::byte* pipeline) : stages_(warp_stages(pipeline)) {}

  // Copies `bytes` from `from` to `to`, and then releases `signal`; both may end in a later call, with finish() at the
  // latest. All lanes call it. Addresses and bytes are multiples of 16.
  __device__ void copy(const std::byte* from, std::byte* to, std::size_t bytes, SignalWord* signal, Epoch value) {
    for (std::size_t at = 0; at < bytes; at += kPiece) {
      const bool is_last = at + kPiece >= bytes;
      const auto size = static_cast<std::uint32_t>(is_last ? bytes - at : kPiece);
      make_room(value);
      load(from + at, size);
      if (owns(loaded_++)) {
        to_ = to + at;
        bytes_ = size;
        signal_ = is_last ? signal : nullptr;
      }
    }
  }
  // Sends the rest and releases all signals. Then the stages are free.
  __device__ void finish(Epoch value) {
    if (loaded_ == 0) return;
    ptx::copies_wait<0>();
    while (sent_ != loaded_) send_oldest();
    ptx::bulk_wait<0>();
    __syncwarp();  // I12: the copies of all lanes are complete before a signal
    release(value);
    loaded_ = sent_ = 0;
  }

 private:
  static constexpr std::uint32_t kPiece = sizeof(uint4) * 32 * kStageVectors;  // a stage of a warp
  static constexpr int kLoads = kStages / 2;                                   // in flight
  static constexpr int kOld = kStages + kLoads;  // so many pieces later the copy of a piece is likely complete
  static constexpr int kBatch = 31 - kOld;  // so many pieces apart old ones are signalled, before a lane has another
  static_assert(kBatch > 0);

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ static bool owns(int piece) { return lane() == piece % 32; }
  __device__ uint4* stage_of(int piece) const { return stages_ + piece % kStages * kStageVectors * 32; }

  // The piece that was in the next stage has left.
  __device__ void make_room(Epoch value) {
    if (loaded_ - sent_ == kLoads) {
      ptx::copies_wait<kLoads - 1>();
      send_oldest();
    }
    if (owns(loaded_ - kStages)) ptx::bulk_wait_read<0>();
    if (loaded_ % kBatch == 0) signal_old(value);
    __syncwarp();
  }
  __device__ void load(const std::byte* from, std::uint32_t bytes) const {
    uint4* const to = stage_of(loaded_) + lane();
#pragma unroll
    for (int v = 0; v < kStageVectors; ++v) {
      const auto at = static_cast<std::uint32_t>(sizeof(uint4)) * static_cast<std::uint32_t>(v * 32 + lane());
      if (at < bytes) ptx::copy_to_shared(to + v * 32, from + at);
    }
    ptx::copies_commit();
  }
  // Every lane has waited for what it loaded of the piece.
  __device__ void send_oldest() {
    ptx::fence_shared_for_bulk();
    __syncwarp();
    if (owns(sent_)) {
      ptx::bulk_store(to_, reinterpret_cast<const std::byte*>(stage_of(sent_)), bytes_);
      ptx::bulk_commit();
    }
    ++sent_;
  }
  // I12: the copies of all old pieces are complete before one of them is signalled.
  __device__ void signal_old(Epoch value) {
    const bool is_old = ((loaded_ - 1 - lane()) & 31) >= kOld;
    if (is_old) ptx::bulk_wait<0>();
    __syncwarp();
    if (is_old) release(value);
  }
  __device__ void release(Epoch value) {
    if (signal_ != nullptr) store_release(*signal_, value);
    signal_ = nullptr;
  }

  uint4* stages_;
  int loaded_ = 0;
  int sent_ = 0;  // of them
  std::byte* to_ = nullptr;
  std::uint32_t bytes_ = 0;
  SignalWord* signal_ = nullptr;
};

// Of a kernel that copies no rows.
struct NoRowCopies {
  __device__ explicit NoRowCopies(std::byte*) {}
  __device__ void finish(Epoch) const {}
};

// Of a combine whose results are mostly one row with weight 1.
struct ResultCopyOps : TeamOpsOf<true> {
  static constexpr bool kCopiesRows = true;
  __device__ static ResultCopyOps of_block(std::uint32_t*) { return {}; }
};
static_assert(ResultOps<ResultCopyOps, SyncedTeam> && RowOps<ResultCopyOps, WarpwiseTeam>);

}  // namespace ferry::cuda
