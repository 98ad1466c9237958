// NvshmemJob: NVSHMEM in this process from its start to its end, and its one symmetric heap, which is allocated at the
// start. After the start no call of NVSHMEM waits for another process.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>

#include "base/symmetric_arena.h"
#include "ferry/detail/base/order.h"
#include "net/bootstrap.h"

namespace ferry::cuda {

class NvshmemJob {
 public:
  // Collective over the bootstrap; rank r becomes PE r and runs on `device`. Throws Error(unsupported) if NVSHMEM
  // does not start, or was started in this process before.
  static std::shared_ptr<NvshmemJob> start(net::Bootstrap& bootstrap, int device, std::size_t heap_bytes,
                                           std::chrono::milliseconds deadline);
  ~NvshmemJob();
  NvshmemJob(const NvshmemJob&) = delete;
  NvshmemJob& operator=(const NvshmemJob&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // This rank's heap; and the heap of `rank`, or null if this device cannot store to it.
  std::byte* heap() const { return heap_; }
  std::byte* heap_of(int rank) const;

  // Stores a word at `peer` from the host, while kernels may run. `word` is where it lies in this rank's heap.
  void put_word(int peer, std::byte* word, Epoch value) const;

  // Waits until all that this rank has put, by its kernels and by put_word, has landed. Its device is current.
  void finish_puts() const;

  // The ranks agree on a piece of the heap, which is zeroed. The last copy of the pointer returns the piece after every
  // put of this rank has landed. `gather` is all_gather of the world that takes it; its rank r is PE r. No rank may
  // write to a piece before all ranks have taken it.
  using Gather = std::function<void(std::span<const std::byte> mine, std::span<std::byte> all)>;
  static std::shared_ptr<std::byte> take(const std::shared_ptr<NvshmemJob>& job, std::size_t bytes,
                                         const RankMask& mask, const Gather& gather);

  // Collective over the bootstrap, and the last call. NVSHMEM's end waits for all processes without a deadline. So it
  // ends only if all of them come in time; otherwise it runs until the process ends.
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

// Launches a kernel that waits until every put of this PE's kernels has landed, and waits for it.
void complete_all_puts();

}  // namespace ferry::cuda
