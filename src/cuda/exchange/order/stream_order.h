// StreamOrder: the calls of one exchange run in the order in which they were made, also on different streams.
#pragma once

#include <cuda_runtime_api.h>

#include <optional>

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
  StreamOrder() {
    end_of_last_.create();
    end_of_captured_.create();
  }

  // Before a call enqueues anything on `stream`: where the last call went to another stream, `stream` waits for all
  // that one has by now. A graph cannot wait for a stream outside of it. So a captured call follows those of its own
  // capture, and one that is not captured follows the last one that was not, whatever was captured in between.
  // The caller may destroy a stream when the exchange has had its next call. So later calls do not touch it.
  void follow(cudaStream_t stream);
  // The stream of the newest call is in a capture. That stream must be there.
  bool is_captured() const { return newest_ && capture_of(*newest_) != kNoCapture; }

 private:
  struct Captured {
    cudaStream_t stream;
    CaptureId capture;
  };
  void leave_last(cudaStream_t next, CaptureId capture_of_next);
  void follow_captured(cudaStream_t stream, CaptureId capture);

  std::optional<cudaStream_t> last_;       // of the last call that was not captured
  bool has_left_last_ = false;             // end_of_last_ is recorded
  std::optional<Captured> last_captured_;  // of the last call that was captured
  std::optional<cudaStream_t> newest_;     // of the last of both
  DeviceEvent end_of_last_, end_of_captured_;
};

}  // namespace ferry::cuda
