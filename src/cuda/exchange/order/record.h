// Record: the errors that kernels of an exchange report to the host, and the exceptions that they become.
#pragma once

#include <memory>

#include "cuda/device/rank_device.h"
#include "cuda/exchange/plan/round_masks.h"
#include "exchange/checks/validate.h"
#include "ferry/detail/cuda/state/device_state.h"

namespace ferry::cuda {

class Record {
 public:
  Record();

  HostRecord* host() const { return record_; }
  // `deferred` frees the memory later.
  void free_with(DeferredFree& deferred) { deferred.keep(std::move(memory_)); }

  // A kernel gave up a wait.
  bool has_failed() const;
  // That wait, and the rank that caused it. The other ranks get a moment to name it. Where they name a masked rank, the
  // one that names it caused the failure.
  WaitRecord failure(const PeerLinks& links, const RoundMasks& masks) const;

  // The routing of a dispatch that kernels have refused (refused_dispatch.cuh) and the host has not thrown for; 0:
  // none.
  Epoch refused() const;
  void forget_refused();

  // Throw Error(invalid_argument), once, for what kernels found in the arguments of an earlier call.
  void require_no_bad_ids(int rank, int experts);
  void require_good_input_scale(int rank);
  void require_same_input_scale(int rank);
  void require_good_counts(int rank);
  void require_no_bad_handle(int rank);
  void require_enough_rows(int rank, std::int64_t min_row_capacity);
  void require_room_for_handle(int rank);
  // Throws if rows of a dispatch overflowed since the last call.
  void tell_overflow(int rank);
  // Throws for a scale that was found, but for those of dispatches that it has thrown for, and of dispatches before.
  void tell_other_scale(int rank, const OtherScale& other);

 private:
  std::shared_ptr<PinnedMemory> memory_;
  HostRecord* record_;
  std::uint32_t overflows_told_ = 0;
  std::uint32_t scales_told_ = 0;  // the number of that dispatch
};

}  // namespace ferry::cuda
