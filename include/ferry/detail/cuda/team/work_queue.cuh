// WorkQueue: a team's share of a sequence of places. It begins with places of its own and then draws from a counter,
// so that a team whose multiprocessor or link is slow takes fewer. Which team takes a place is seen in no result.
#pragma once

#include <cstdint>

#include "ferry/detail/base/order.h"
#include "ferry/detail/cuda/team/team_group.cuh"
#include "ferry/detail/protocol/work_share.h"

namespace ferry::cuda {

class WorkQueue {
 public:
  using Counter = DeviceWord<std::uint32_t>;
  const int index;  // the first place

  // `own` places of every team come by count, the rest of `length` from `counter`, which is 0 when a round begins.
  // `slots`: two, of the team, in shared memory. All threads of the team.
  __device__ WorkQueue(const SyncedTeam& g, Block block, int own, int length, Counter& counter, int* slots)
      : index(block.index),
        teams_(block.count),
        own_(own),
        place_(block.index),
        takes_tickets_(length > own * block.count),
        counter_(counter),
        slots_(slots) {
    if (own_ == 1) draw(g);
  }

  // The place after the last one given, which the queue remembers; also a barrier where it was drawn.
  __device__ int next(const SyncedTeam& g, int) {
    if (++given_ < own_ || !takes_tickets_) {
      place_ += teams_;
      if (given_ + 1 == own_) draw(g);
      return place_;
    }
    int& slot = slots_[given_ & 1];  // the other one may still be read
    if (g.thread() == 0) slot = own_ * teams_ + static_cast<int>(ticket_);
    draw(g);
    g.sync();
    return slot;
  }

 private:
  // A call ahead of its use, so that nobody waits for the answer.
  __device__ void draw(const SyncedTeam& g) {
    if (takes_tickets_ && g.thread() == 0) ticket_ = fetch_add_relaxed(counter_, 1u);
  }

  int teams_;
  int own_;
  int place_;
  bool takes_tickets_;
  Counter& counter_;
  int* slots_;
  int given_ = 0;  // calls of next
  std::uint32_t ticket_ = 0;
};

static_assert(WorkShare<WorkQueue, SyncedTeam>);

}  // namespace ferry::cuda
