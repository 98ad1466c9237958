// CapturedGraph: what was enqueued on a stream, captured once and ready to be replayed.
#pragma once

#include <cuda_runtime_api.h>

#include "ferry/detail/cuda/launch/launch.h"
#include "ferry/detail/cuda/state/cuda_check.h"

namespace ferry::test {

class CapturedGraph {
 public:
  // Captures what `enqueue` puts on the stream, and uploads the graph there, so that no launch allocates later. Other
  // threads may do anything meanwhile.
  template <class Enqueue>
  CapturedGraph(cudaStream_t stream, const Enqueue& enqueue) {
    cudaGraph_t graph = nullptr;
    cuda::cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    try {
      enqueue();
    } catch (...) {
      cudaStreamEndCapture(stream, &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      cudaGetLastError();
      throw;
    }
    cuda::cuda_check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    const cudaError_t made = cudaGraphInstantiate(&exec_, graph, 0);
    cudaGraphDestroy(graph);
    cuda::cuda_check(made, "cudaGraphInstantiate");
    cuda::cuda_check(cudaGraphUpload(exec_, stream), "cudaGraphUpload");
  }
  ~CapturedGraph() { cudaGraphExecDestroy(exec_); }
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  void launch(cudaStream_t stream) const { cuda::cuda_check(cudaGraphLaunch(exec_, stream), "cudaGraphLaunch"); }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

}  // namespace ferry::test
