// Times what ranks enqueue: a chain of it is captured in a CUDA graph and replayed.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <vector>

#include "ferry/world.h"
#include "tool/bench/base/bench_case.h"

namespace ferry::app {

// A stream of the current device.
class Stream {
 public:
  Stream();
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }
  void wait() const;

 private:
  cudaStream_t stream_ = nullptr;
};

// What `enqueue` puts on the stream, as a graph that the caller destroys.
cudaGraph_t capture(cudaStream_t stream, const std::function<void()>& enqueue);

struct GraphTiming {
  std::vector<double> seconds;  // of one round, of the rank for which the replay took longest; one value a replay
  int chain = 0;                // rounds in the graph
};

// Collective. `enqueue(i)` puts round i on the stream, in a chain of `chain` rounds or a multiple of it. Each replay
// begins behind a few rounds that are not timed, so that the ranks begin together and no host is waited for.
GraphTiming time_graph(World& world, cudaStream_t stream, int chain, const BenchEffort& effort,
                       const std::function<void(int round)>& enqueue);

}  // namespace ferry::app
