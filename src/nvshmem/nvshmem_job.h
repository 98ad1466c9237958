// NvshmemJob: NVSHMEM in this process, from its start to its end, and the one symmetric heap that is allocated then.
// After the start no call of NVSHMEM waits for another process.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>

#include "base/symmetric_arena.h"
#include "net/bootstrap.h"

namespace ferry::cuda {

class NvshmemJob {
 public:
  // Collective over the bootstrap; rank r becomes PE r and runs on `device`. Throws Error(unsupported) where NVSHMEM
  // does not start, or has been started in this process already.
  static std::shared_ptr<NvshmemJob> start(net::Bootstrap& bootstrap, int device, std::size_t heap_bytes,
                                           std::chrono::milliseconds deadline);
  ~NvshmemJob();
  NvshmemJob(const NvshmemJob&) = delete;
  NvshmemJob& operator=(const NvshmemJob&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // The heap, and that of `rank` where this process's device can store to it, else null.
  std::byte* heap() const { return heap_; }
  std::byte* heap_of(int rank) const;

  // Agreement on a piece of the heap, zeroed; it is given back when the pointer dies, after every put of this rank has
  // landed. `gather` is all_gather of the world that takes it, whose rank r is PE r. Nobody may write to a piece before
  // all have taken it.
  using Gather = std::function<void(std::span<const std::byte> mine, std::span<std::byte> all)>;
  static std::shared_ptr<std::byte> take(const std::shared_ptr<NvshmemJob>& job, std::size_t bytes,
                                         const RankMask& mask, const Gather& gather);

  // Collective over the bootstrap, and the last call: NVSHMEM ends where all processes come in time, since it would
  // wait for them without a deadline; else it goes on until the process ends.
  void end(net::Bootstrap& bootstrap, std::chrono::milliseconds deadline);

 private:
  NvshmemJob(net::Bootstrap& bootstrap, int device, std::size_t heap_bytes);
  void release(const ArenaPiece& piece);

  int device_;
  int rank_;
  int size_;
  std::byte* heap_ = nullptr;
  bool has_ended_ = false;
  std::mutex guard_;
  SymmetricArena arena_;
};

// Returns when every put that this PE's kernels have issued has landed. By a kernel of its own.
void complete_all_puts();

}  // namespace ferry::cuda
