// BulkSignals: the signals that a thread owes for its bulk copies that have left and are not complete yet (I12).
#pragma once

#include "cuda/ptx.cuh"
#include "shared/order.h"

namespace ferry::cuda {

template <int kPending>
class BulkSignals {
 public:
  // Closes the group of this thread's copies since the last call, whose signal is `word` (null: none was made); waits
  // for the oldest one and signals for it.
  __device__ void commit(SignalWord* word, Epoch value) {
    ptx::bulk_commit();
    ptx::bulk_wait<kPending>();
    signal_oldest();
    words_[kPending - 1] = word;
    value_ = value;
  }
  // All copies are complete and signalled.
  __device__ void finish() {
    ptx::bulk_wait<0>();
#pragma unroll
    for (int i = 0; i < kPending; ++i) signal_oldest();
  }

 private:
  __device__ void signal_oldest() {
    if (words_[0] != nullptr) store_release(*words_[0], value_);
#pragma unroll
    for (int i = 0; i + 1 < kPending; ++i) words_[i] = words_[i + 1];
    words_[kPending - 1] = nullptr;
  }

  SignalWord* words_[kPending] = {};  // oldest first
  Epoch value_ = 0;
};

}  // namespace ferry::cuda
