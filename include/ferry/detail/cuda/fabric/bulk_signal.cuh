// BulkSignal: the signal that a thread owes for its bulk copy that has left and is not complete yet (I12).
#pragma once

#include "ferry/detail/base/order.h"
#include "ferry/detail/cuda/team/ptx.cuh"

namespace ferry::cuda {

class BulkSignal {
 public:
  // Closes the group of this thread's copies since the last call, whose signal is `word` (null: none was made); waits
  // for the group before it and signals for that.
  __device__ void commit(SignalWord* word, Epoch value) {
    ptx::bulk_commit();
    ptx::bulk_wait<1>();
    signal();
    word_ = word;
    value_ = value;
  }
  // All copies are complete and signalled.
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
