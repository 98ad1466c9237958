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
  leave_last(stream, capture);
  if (capture != kNoCapture) {
    follow_captured(stream, capture);
  } else {
    if (has_left_last_ && *last_ != stream)
      cuda_check(cudaStreamWaitEvent(stream, end_of_last_.get()), "cudaStreamWaitEvent");
    last_ = stream;
    has_left_last_ = false;
  }
  newest_ = stream;
}

// A stream that is being captured says nothing of its work outside of the capture. A call on the default stream ends
// the capture of another one. Nobody destroys the default stream, so the event can wait for a call that is not
// captured.
void StreamOrder::leave_last(cudaStream_t next, CaptureId capture_of_next) {
  if (last_ == cudaStreamLegacy && capture_of_next != kNoCapture) return;
  if (!last_ || has_left_last_ || *last_ == next || capture_of(*last_) != kNoCapture) return;
  cuda_check(cudaEventRecord(end_of_last_.get(), *last_), "cudaEventRecord");
  has_left_last_ = true;
}

// A capture's number never comes again. So where both calls have the same one, it still goes on, and the stream of the
// earlier call is in it.
void StreamOrder::follow_captured(cudaStream_t stream, CaptureId capture) {
  if (last_captured_ && last_captured_->capture == capture && last_captured_->stream != stream) {
    cuda_check(cudaEventRecord(end_of_captured_.get(), last_captured_->stream), "cudaEventRecord");
    cuda_check(cudaStreamWaitEvent(stream, end_of_captured_.get()), "cudaStreamWaitEvent");
  }
  last_captured_ = {stream, capture};
}

}  // namespace ferry::cuda
