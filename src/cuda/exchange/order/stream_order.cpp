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
  cudaStream_t last = last_;
  const bool changes = has_last_ && last != stream;
  last_ = stream;
  has_last_ = true;
  if (!changes || capture_of(last) != capture_of(stream)) return;
  cuda_check(cudaEventRecord(end_of_last_.get(), last), "cudaEventRecord");
  cuda_check(cudaStreamWaitEvent(stream, end_of_last_.get()), "cudaStreamWaitEvent");
}

}  // namespace ferry::cuda
