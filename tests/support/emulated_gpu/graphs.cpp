// Stream captures and graphs of the emulated runtime. A captured stream captures alone: no other stream joins it.
#include "support/emulated_gpu/graphs.h"

#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace ferry::emulated {
namespace {

struct Capture {
  unsigned long long id;
  std::thread::id thread;
  cudaStreamCaptureMode mode;
  bool is_invalid;
  Graph graph;
};
struct Captures {
  std::mutex guard;
  unsigned long long newest = 0;
  std::map<const Stream*, Capture> of;
};
Captures& captures() {
  static Captures captures;
  return captures;
}

thread_local cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeThreadLocal;

}  // namespace

bool add_to_capture(const Stream& stream, std::function<void(Stream&)> operation) {
  const std::lock_guard lock(captures().guard);
  const auto found = captures().of.find(&stream);
  if (found == captures().of.end()) return false;
  found->second.graph.operations.push_back(std::move(operation));
  return true;
}

bool is_anything_captured() {
  const std::lock_guard lock(captures().guard);
  return !captures().of.empty();
}

bool spoil_captures(int device) {
  const std::lock_guard lock(captures().guard);
  bool any = false;
  for (auto& [stream, capture] : captures().of)
    if (device_of(*stream) == device) any = capture.is_invalid = true;
  return any;
}

bool spoil_own_captures() {
  if (mode_of_thread == cudaStreamCaptureModeRelaxed) return false;
  const std::lock_guard lock(captures().guard);
  bool any = false;
  for (auto& [stream, capture] : captures().of)
    if (capture.thread == std::this_thread::get_id() && capture.mode != cudaStreamCaptureModeRelaxed)
      any = capture.is_invalid = true;
  return any;
}

}  // namespace ferry::emulated

using namespace ferry::emulated;

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, mode_of_thread);
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const std::lock_guard lock(captures().guard);
  const Capture capture{++captures().newest, std::this_thread::get_id(), mode, false, {}};
  const bool begins = captures().of.try_emplace(stream, capture).second;
  return begins ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard lock(captures().guard);
  auto ended = captures().of.extract(stream);
  if (ended.empty()) return cudaErrorInvalidValue;
  *graph = nullptr;
  if (ended.mapped().is_invalid) return cudaErrorStreamCaptureInvalidated;
  *graph = new Graph(std::move(ended.mapped().graph));
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id) {
  if (was_destroyed(stream)) return cudaErrorInvalidResourceHandle;
  const std::lock_guard lock(captures().guard);
  const auto found = captures().of.find(stream);
  *status = found == captures().of.end() ? cudaStreamCaptureStatusNone : cudaStreamCaptureStatusActive;
  if (found != captures().of.end()) *id = found->second.id;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  unsigned long long id = 0;
  return cudaStreamGetCaptureInfo(stream, status, &id);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new Graph(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  for (const auto& operation : exec->operations) operation(*stream);
  return failure().empty() ? cudaSuccess : cudaErrorLaunchFailure;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return cudaGraphDestroy(exec); }
