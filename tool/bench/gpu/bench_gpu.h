// `ferry bench --backend cuda|nvshmem`: what is measured on GPUs, without a CUDA header. docs/performance.md says how.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tool/bench/base/bench_case.h"
#include "tool/ranks/ranks.h"
#include "tool/text/json.h"

namespace ferry::app {

// What the bound allows a phase: seconds beside its bytes, and times what the bytes take at the measured speeds.
inline constexpr double kPhaseLatency = 6.5e-6;
inline constexpr double kPhaseFactor = 1.10;

// The bytes of one rank in one phase.
struct PhaseBytes {
  double wire = 0;    // the larger of what it sends to other ranks and what it gets from them
  double device = 0;  // read and written in its own memory
};

// The bytes of the busiest rank, the mean over the input sets.
struct GpuBytes {
  PhaseBytes dispatch;
  PhaseBytes combine;
};
GpuBytes gpu_bytes(const BenchCase& bench, int sets);
// The same of one set, of which these are the ids: of each rank, [n, top_k].
GpuBytes gpu_bytes_of(const BenchCase& bench, const std::vector<std::vector<std::int32_t>>& ids);

// What the GPUs of a run can do: measured before the first line.
struct PutRate {
  int in_flight = 0;  // warps of a rank that put at a time, a message each
  double bytes_per_second = 0;
};

struct GpuSpeeds {
  struct Point {
    double bytes;  // to all peers together
    double seconds;
    int blocks;  // with which it was fastest
  };
  struct Copy {
    const char* method;
    double bytes_per_second;  // reads and writes both counted; of the slowest rank
  };
  std::vector<Point> wire;  // bulk copies of every rank to all others at once
  double wire_bytes_per_second = 0;
  double wire_latency = 0;  // seconds; both of a line through the points
  const char* method = "bulk copies from shared memory";
  std::vector<PutRate> puts;         // NVSHMEM: by how many are in flight
  std::vector<Copy> copies;          // in device memory, every way that was tried
  double copy_bytes_per_second = 0;  // the fastest of them
  const char* copy_method = "";
};

// time = latency + bytes / rate, by least squares of the relative errors.
void fit_line(GpuSpeeds& speeds);
// Sets copy_bytes_per_second and copy_method from `copies`, of which there is at least one.
void take_fastest_copy(GpuSpeeds& speeds);
// Both. Where nothing was sent, as one rank sends nothing, the wire is as fast as copies.
void find_rates(GpuSpeeds& speeds);
// Seconds of one phase: the wire's latency, and its bytes at these speeds; kPhaseLatency + kPhaseFactor * the bytes.
double floor_of(const PhaseBytes& bytes, const GpuSpeeds& speeds);
double bound_of(const PhaseBytes& bytes, const GpuSpeeds& speeds);

// A kernel of an operation.
struct GpuKernel {
  int blocks = 0;
  double share = 1;  // of the operation's time
};
// The multiprocessors that kernels hold, times how long they do: blocks * seconds of each, where a multiprocessor
// counts once.
double sm_seconds_of(const std::vector<GpuKernel>& kernels, double seconds, int multiprocessors);

// NCCL on the same tokens, bf16: seconds, medians.
struct NcclTimes {
  std::string library;
  double all_gather = 0;      // every token to every rank: the dispatch
  double reduce_scatter = 0;  // the combine that belongs to it
  double all_to_all = 0;      // top_k copies of every token, spread evenly
};

// The same rounds where all ranks are one node, which takes no puts: seconds, medians.
struct OneNodeTimes {
  double dispatch = 0;
  double pair = 0;
};

struct GpuMeasurement {
  BenchSamples dispatch;  // seconds of a round in a chain of dispatches, one value for each replay
  BenchSamples pair;      // in a chain of dispatch-combine pairs
  int dispatch_chain = 0;
  int pair_chain = 0;
  int input_sets = 0;
  double set_bytes = 0;  // of one rank and all its sets
  std::size_t memory_bytes = 0;
  GpuBytes bytes;
  std::vector<GpuKernel> dispatch_kernels;  // in their order; empty: they could not be told apart
  std::vector<GpuKernel> pair_kernels;
  int multiprocessors = 0;
  std::optional<NcclTimes> baseline;
  std::optional<OneNodeTimes> one_node;

  // The times of the operation. For combine they are the pair less the median dispatch.
  BenchSamples samples(BenchOperation operation) const;
  // sm_seconds_of at the median; nothing where the kernels are not known. Of combine it is the pair's less the
  // dispatch's.
  std::optional<double> sm_seconds(BenchOperation operation) const;
};

struct GpuResult {
  BenchCase bench;
  const GpuSpeeds* speeds;
  GpuMeasurement measured;
  int nodes = 1;

  double floor_seconds() const;  // the wire's latency, and the bytes at the speeds measured in this run
  double bound_seconds() const;  // kPhaseLatency + kPhaseFactor * the bytes at these speeds, for each phase
};

class GpuBench {
 public:
  virtual ~GpuBench() = default;
  virtual const GpuSpeeds& speeds() const = 0;
  virtual const std::string& hardware() const = 0;  // "4 x NVIDIA H200, CUDA driver 13.0, runtime 13.0"
  virtual const char* backend() const = 0;
  // All operations of the case at once.
  virtual GpuMeasurement measure(const BenchCase& bench, bool baseline) = 0;
};

// Plain puts of messages of `message` bytes by NVSHMEM, all ranks to all others at once. Collective. Throws
// Error(unsupported) in a build without NVSHMEM.
struct PutSpeeds {
  std::vector<GpuSpeeds::Point> points;
  std::vector<PutRate> rates;
};
PutSpeeds measure_put_speeds(const Ranks& ranks, std::size_t message);

// Throws Error where the GPUs cannot be had, or where `baseline` is wanted and this build has no NCCL. The baseline of
// processes with a GPU each is the same exchange on one node. Collective over the processes.
std::unique_ptr<GpuBench> make_gpu_bench(const Backend& backend, int ranks, int nodes, bool baseline);

// What measures on GPUs: bench/cuda and bench/nvshmem set it, where the build has them.
struct GpuMeasurers {
  std::unique_ptr<GpuBench> (*make_bench)(const Backend& backend, int ranks, int nodes, bool baseline) = nullptr;
  PutSpeeds (*measure_puts)(const Ranks& ranks, std::size_t message) = nullptr;
};
GpuMeasurers& gpu_measurers();

Json to_json(const GpuResult& result, const GpuBench& bench, const std::string& command);
std::string to_text(const std::vector<GpuResult>& results, const GpuBench& bench);
// What the columns of that table mean.
std::string footnote_of(const std::vector<GpuResult>& results);

}  // namespace ferry::app
