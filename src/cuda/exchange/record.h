// Record: what the kernels of an exchange tell its host when something went wrong, and the errors that this becomes.
#pragma once

#include <memory>

#include "cuda/exchange/device_place.h"
#include "exchange/validate.h"
#include "ferry/detail/cuda/kernels/device_state.h"

namespace ferry::cuda {

class Record {
 public:
  Record();

  HostRecord* host() const { return record_; }
  // Keeps the memory until later.
  void free_with(DeferredFree& deferred) { deferred.keep(std::move(memory_)); }

  // Whether a kernel gave up a wait.
  bool has_failed() const;
  // Which wait that was, and the rank that it goes back to, which the others are given a moment to name.
  WaitRecord failure(const PeerLinks& links) const;

  // Throw Error(invalid_argument) once for what kernels found in an earlier call's arguments.
  void require_no_bad_ids(int rank, int experts);
  void require_enough_rows(int rank, std::int64_t min_row_capacity);

 private:
  std::shared_ptr<PinnedMemory> memory_;
  HostRecord* record_;
};

}  // namespace ferry::cuda
