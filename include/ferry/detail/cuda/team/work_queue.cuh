// WorkQueue: a WorkShare with dynamic scheduling. A team first has positions of its own, then draws positions from an
// atomic counter. So a team whose multiprocessor or link is slow draws fewer. No result depends on which team takes a
// position.
#pragma once

#include <cstdint>

#include "ferry/detail/base/order.h"
#include "ferry/detail/cuda/team/team_group.cuh"
#include "ferry/detail/protocol/contracts/work_share.h"

namespace ferry::cuda {

class WorkQueue {
 public:
  using Counter = DeviceWord<std::uint32_t>;
  const int index;  // the first position

  // Every team has `own` positions; the rest of `length` are drawn from `counter`, which is 0 when a round begins.
  // `slots`: two words of the team in shared memory. All threads of the team call it.
  __device__ WorkQueue(const SyncedTeam& g, FixedShare block, int own, int length, Counter& counter, int* slots)
      : index(block.index),
        teams_(block.count),
        own_(own),
        place_(block.index),
        draws_(length > own * block.count),
        counter_(counter),
        slots_(slots) {
    if (own_ == 1) draw(g);
  }

  // The next position of this team. It is also a barrier if the position is drawn.
  __device__ int next(const SyncedTeam& g, int) {
    if (++given_ < own_ || !draws_) {
      place_ += teams_;
      if (given_ + 1 == own_) draw(g);
      return place_;
    }
    int& slot = slots_[given_ & 1];  // the other slot may still be read
    if (g.thread() == 0) slot = own_ * teams_ + static_cast<int>(drawn_);
    draw(g);
    g.sync();
    return slot;
  }

 private:
  // Draws one call ahead of the use, so that no thread waits for the atomic.
  __device__ void draw(const SyncedTeam& g) {
    if (draws_ && g.thread() == 0) drawn_ = fetch_add_relaxed(counter_, 1u);
  }

  int teams_;
  int own_;
  int place_;
  bool draws_;
  Counter& counter_;
  int* slots_;
  int given_ = 0;  // calls of next() so far
  std::uint32_t drawn_ = 0;
};

static_assert(WorkShare<WorkQueue, SyncedTeam>);

}  // namespace ferry::cuda
