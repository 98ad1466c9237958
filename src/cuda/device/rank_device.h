// The GPU of a rank, and the memory of all ranks as that GPU reaches it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "cuda/device/device_memory.h"
#include "ferry/detail/base/order.h"

namespace ferry::cuda {

// The symmetric memory of all ranks, at the addresses of this rank's device; null for masked ranks. I16: every rank
// keeps the memory of all ranks alive.
using DeviceHeaps = std::vector<std::shared_ptr<std::byte>>;

// What the exchanges of a rank, in one world, know of the handles that they have left.
struct LeftHandles {
  bool may_lack_rows = false;  // one is of a dispatch whose rows may overflow
  bool by_counts = false;      // one is of a dispatch by counts
};

// A rank's device, and how many ranks of the world share it. Each gets an equal share of the multiprocessors.
struct RankDevice {
  int index = 0;  // as cudaSetDevice takes it
  int ranks = 1;
  // Not null where ranks of one process share GPUs: all of them have the same object.
  std::shared_ptr<DeferredFree> deferred_free{};
  std::shared_ptr<LeftHandles> left_handles = std::make_shared<LeftHandles>();
  // Where some ranks are reached by puts only: stores a word at such a rank, from the host. `word` is where it lies in
  // the symmetric memory of this rank.
  std::function<void(int peer, std::byte* word, Epoch value)> put_word{};
  // The same: waits on the host until all that this rank has put, by kernels and by put_word, has landed. No kernel
  // runs.
  std::function<void()> finish_puts{};
};

}  // namespace ferry::cuda
