// StreamOrder: the calls of one exchange run in the order in which they were made, also on different streams.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/device/device_memory.h"

namespace ferry::cuda {

// A capture in CUDA's own numbers.
using CaptureId = unsigned long long;
inline constexpr CaptureId kNoCapture = 0;
// The capture that the stream is in.
CaptureId capture_of(cudaStream_t stream);

class StreamOrder {
 public:
  // `device` must be current.
  StreamOrder() { end_of_last_.create(); }

  // Before a call enqueues anything on `stream`: where the last call went to another stream, `stream` waits for all
  // that one has by now. Where one of the two is captured, they must be in the same capture; otherwise nothing waits,
  // because a graph cannot wait for a stream outside of it.
  void follow(cudaStream_t stream);
  // The stream of the last call is in a capture.
  bool is_captured() const { return has_last_ && capture_of(last_) != kNoCapture; }

 private:
  cudaStream_t last_ = nullptr;
  bool has_last_ = false;
  DeviceEvent end_of_last_;
};

}  // namespace ferry::cuda
