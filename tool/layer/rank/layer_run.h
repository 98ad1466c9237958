// What the ranks of this process share while they run a layer.
#pragma once

#include <barrier>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "ferry/detail/base/order.h"
#include "tool/layer/base/layer_plan.h"
#include "tool/layer/base/layer_report.h"
#include "tool/layer/experts/expert_place.h"
#include "tool/layer/rank/timing.h"
#include "tool/layer/rows/rank_rows.h"
#include "tool/ranks/ranks.h"

namespace ferry::app {

// Where the ranks of this process meet between the phases of a round. A rank that fails leaves, and the others learn of
// it here and not by a deadline.
class FailureBarrier {
 public:
  explicit FailureBarrier(int ranks) : barrier_(ranks) {}
  // False: a rank of this process failed, and the caller makes no more such calls. The failure may have come after this
  // phase. Other ranks that have not seen it wait in the next phase, so the caller leaves that one, too.
  bool all_well() {
    barrier_.arrive_and_wait();
    if (load_acquire(failed_) == 0) return true;
    barrier_.arrive_and_drop();
    return false;
  }
  // Once, by a rank to which all_well() has not said false.
  void fail() {
    store_release(failed_, 1);
    barrier_.arrive_and_drop();
  }

 private:
  std::barrier<> barrier_;
  DeviceWord<int> failed_;
};

struct LayerRun {
  const Ranks& ranks;
  const Layer& layer;
  const LayerOptions& options;
  const LayerPlan& plan;
  float* output;
  const std::function<void(std::int64_t)>& progress;
  const RowsObserver& observer;
  FailureBarrier barrier;
  Timing timing;
  std::mutex guard;
  LayerReport report;
  // Of the ranks of this process. They outlive the threads of the ranks: freeing what is on a GPU waits for its
  // kernels, and those of another rank may wait for this one.
  std::vector<std::unique_ptr<Experts>> experts;

  std::unique_ptr<Experts>& experts_of(const World& world) {
    return experts[static_cast<std::size_t>(world.rank() - ranks.world().rank())];
  }
};

}  // namespace ferry::app
