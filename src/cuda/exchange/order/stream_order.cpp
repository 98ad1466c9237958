#include "cuda/exchange/order/stream_order.h"

#include "ferry/detail/cuda/state/cuda_check.h"

namespace ferry::cuda {

// The default stream is never captured, and must not be asked about it while another one is.
CaptureId capture_of(cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy) return kNoCapture;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  CaptureId id = kNoCapture;
  cuda_check(cudaStreamGetCaptureInfo(stream, &status, &id), "cudaStreamGetCaptureInfo");
  return status == cudaStreamCaptureStatusNone ? kNoCapture : id;
}

void StreamOrder::follow(cudaStream_t stream) {
  if (stream == nullptr) stream = cudaStreamLegacy;
  const CaptureId capture = capture_of(stream);
  std::optional<cudaStream_t>& last = capture == kNoCapture ? last_ : last_captured_;
  if (last && *last != stream && capture_of(*last) == capture) {
    cuda_check(cudaEventRecord(end_of_last_.get(), *last), "cudaEventRecord");
    cuda_check(cudaStreamWaitEvent(stream, end_of_last_.get()), "cudaStreamWaitEvent");
  }
  last = stream;
  newest_ = stream;
}

}  // namespace ferry::cuda
