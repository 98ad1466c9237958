// BulkSignal: a thread's bulk copy that is in flight, and the signal that must follow it (I12).
#pragma once

#include "ferry/detail/base/order.h"
#include "ferry/detail/cuda/team/ptx.cuh"

namespace ferry::cuda {

class BulkSignal {
 public:
  // Commits this thread's copies since the last call as a group; `word` is their signal (null: there were none). Then
  // waits for the group before it and releases the signal of that group.
  __device__ void commit(SignalWord* word, Epoch value) {
    ptx::bulk_commit();
    ptx::bulk_wait<1>();
    signal();
    word_ = word;
    value_ = value;
  }
  // Waits for the last group and releases its signal.
  __device__ void finish() {
    ptx::bulk_wait<0>();
    signal();
    word_ = nullptr;
  }

 private:
  __device__ void signal() const {
    if (word_ != nullptr) store_release(*word_, value_);
  }

  SignalWord* word_ = nullptr;
  Epoch value_ = 0;
};

}  // namespace ferry::cuda
