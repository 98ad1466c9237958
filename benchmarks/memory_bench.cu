// What the bytes of a dispatch take in the memory of one GPU, whatever the links do: that of one rank of RANKS. Some
// blocks read its tokens and write the messages that come to it; the others read messages and write rows. Nobody waits,
// ranks, encodes or signals, and where rows go is known: a message may be read before this round's is written. Rows are
// of one byte for each column; scales are left out. Prints a JSON line per number of tokens: the best of many ways to
// share the work out, the rows without the messages, and what as many bytes take at the rate of copies of 1 GiB. One
// GPU is enough. Never checks what was written.
//
//   memory_bench RANKS HIDDEN TOP_K EXPERTS TOKENS [TOKENS ...]
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include "benchmarks/numbers.h"
#include "ferry/detail/cuda/team/ptx_launch.cuh"
#include "ferry/detail/layout/heap_map.h"
#include "ferry/shape.h"
#include "tool/bench/cuda/copy_kernel.h"

namespace {

using namespace ferry;

constexpr int kThreads = 512;
constexpr int kAhead = 4;  // vectors of a message on their way before the first is stored
constexpr int kReplays = 9;

struct Sharing {
  int blocks = 0, writers = 0;  // of messages, the other blocks write rows
  int write_threads = 0, lay_threads = 0;
};

struct Params {
  int tokens = 0, messages = 0;
  int token_vectors = 0, message_vectors = 0;  // of 16 bytes
  std::size_t slot = 0;
  const std::byte* in = nullptr;
  std::byte* slots = nullptr;
  const std::uint32_t* first_row = nullptr;  // of each message in `rows`, and the end
  const std::uint32_t* rows = nullptr;
  std::byte* out = nullptr;
  Sharing sharing;
};

// A team of `threads` threads, of those of `blocks` blocks of which this one is the index-th.
struct Team {
  int thread, threads, index, count;
  __device__ Team(int threads, int block, int blocks)
      : thread(static_cast<int>(threadIdx.x) % threads),
        threads(threads),
        index(static_cast<int>(threadIdx.x) / threads * blocks + block),
        count(kThreads / threads * blocks) {}
};

__device__ uint4* vectors_at(std::byte* from, std::size_t index, std::size_t bytes) {
  return reinterpret_cast<uint4*>(from + index * bytes);
}
__device__ const uint4* vectors_at(const std::byte* from, std::size_t index, std::size_t bytes) {
  return reinterpret_cast<const uint4*>(from + index * bytes);
}

// A token is read once, and as many messages are written as come here for each token of this rank.
__device__ void write_messages(const Params& p, const Team& team) {
  for (int token = team.index; token < p.tokens; token += team.count) {
    const uint4* from =
        vectors_at(p.in, static_cast<std::size_t>(token), static_cast<std::size_t>(p.token_vectors) * 16);
    const auto begin = static_cast<int>(static_cast<long long>(p.messages) * token / p.tokens);
    const auto end = static_cast<int>(static_cast<long long>(p.messages) * (token + 1) / p.tokens);
#pragma unroll 2
    for (int i = team.thread; i < p.message_vectors; i += team.threads) {
      const uint4 low = from[min(2 * i, p.token_vectors - 1)];
      const uint4 high = from[min(2 * i + 1, p.token_vectors - 1)];
      const uint4 narrow{low.x ^ low.y, low.z ^ low.w, high.x ^ high.y, high.z ^ high.w};
      for (int m = begin; m < end; ++m) vectors_at(p.slots, static_cast<std::size_t>(m), p.slot)[i] = narrow;
    }
  }
}

__device__ void write_rows(const Params& p, const Team& team) {
  const std::size_t row_bytes = static_cast<std::size_t>(p.message_vectors) * 16;
  for (int message = team.index; message < p.messages; message += team.count) {
    const uint4* from = vectors_at(p.slots, static_cast<std::size_t>(message), p.slot);
    const std::uint32_t first = p.first_row[message], end = p.first_row[message + 1];
    for (int begin = team.thread; begin < p.message_vectors; begin += kAhead * team.threads) {
      uint4 value[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) value[a] = from[min(begin + a * team.threads, p.message_vectors - 1)];
      for (std::uint32_t i = first; i < end; ++i) {
        uint4* to = vectors_at(p.out, p.rows[i], row_bytes) + begin;
#pragma unroll
        for (int a = 0; a < kAhead; ++a)
          if (begin + a * team.threads < p.message_vectors) to[a * team.threads] = value[a];
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads, 2) floor_kernel(const __grid_constant__ Params p) {
  ptx::await_earlier_kernels();
  const int block = static_cast<int>(blockIdx.x), writers = p.sharing.writers;
  if (block < writers)
    write_messages(p, Team(p.sharing.write_threads, block, writers));
  else
    write_rows(p, Team(p.sharing.lay_threads, block - writers, p.sharing.blocks - writers));
  ptx::let_next_kernel_launch();
}

void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "memory_bench: %s\n", cudaGetErrorString(status));
  std::exit(1);
}

class DeviceArray {
 public:
  explicit DeviceArray(std::size_t bytes) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, std::max<std::size_t>(bytes, 256)));
    check(cudaMemset(memory, 0, bytes));
    bytes_ = static_cast<std::byte*>(memory);
  }
  explicit DeviceArray(const std::vector<std::uint32_t>& values) : DeviceArray(values.size() * sizeof(std::uint32_t)) {
    check(cudaMemcpy(bytes_, values.data(), values.size() * sizeof(std::uint32_t), cudaMemcpyHostToDevice));
  }
  ~DeviceArray() { cudaFree(bytes_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  std::byte* bytes() const { return bytes_; }

 private:
  std::byte* bytes_ = nullptr;
};

void launch(const Params& params, cudaStream_t stream) {
  cudaLaunchAttribute pdl{};
  pdl.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  pdl.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(params.sharing.blocks));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  config.attrs = &pdl;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, &floor_kernel, params));
}

// The time of one of `steps` calls in a graph: the median of some replays.
template <class Call>
float microseconds(int steps, const Call& call) {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  cudaEvent_t from = nullptr, to = nullptr;
  check(cudaStreamCreate(&stream));
  check(cudaEventCreate(&from));
  check(cudaEventCreate(&to));
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int step = 0; step < steps; ++step) call(stream);
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&ready, graph, 0));
  std::vector<float> us;
  for (int replay = 0; replay <= kReplays; ++replay) {
    check(cudaEventRecord(from, stream));
    check(cudaGraphLaunch(ready, stream));
    check(cudaEventRecord(to, stream));
    check(cudaStreamSynchronize(stream));
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, from, to));
    if (replay > 0) us.push_back(1000 * milliseconds / static_cast<float>(steps));
  }
  check(cudaGraphExecDestroy(ready));
  check(cudaGraphDestroy(graph));
  check(cudaEventDestroy(to));
  check(cudaEventDestroy(from));
  check(cudaStreamDestroy(stream));
  std::nth_element(us.begin(), us.begin() + kReplays / 2, us.end());
  return us[kReplays / 2];
}

struct RoundShape {
  int ranks = 0, hidden = 0, top_k = 0, experts = 0;
};

// The messages that come to rank 0, whose experts are the first ones, and their rows, grouped by expert.
struct Routing {
  std::vector<std::uint32_t> first_row, rows;
  Routing(const RoundShape& shape, int tokens) {
    std::mt19937 random(1);
    const auto local = static_cast<std::size_t>((shape.experts + shape.ranks - 1) / shape.ranks);
    std::vector<std::size_t> expert(static_cast<std::size_t>(shape.experts)), named, of_expert(local + 1);
    std::iota(expert.begin(), expert.end(), 0);
    for (int token = 0; token < shape.ranks * tokens; ++token) {
      const std::size_t before = named.size();
      for (std::size_t k = 0; k < static_cast<std::size_t>(shape.top_k); ++k) {
        std::swap(expert[k], expert[k + random() % (expert.size() - k)]);
        if (expert[k] < local) named.push_back(expert[k]);
      }
      if (named.size() != before) first_row.push_back(static_cast<std::uint32_t>(before));
    }
    first_row.push_back(static_cast<std::uint32_t>(named.size()));
    for (const std::size_t e : named) ++of_expert[e + 1];
    std::partial_sum(of_expert.begin(), of_expert.end(), of_expert.begin());
    for (const std::size_t e : named) rows.push_back(static_cast<std::uint32_t>(of_expert[e]++));
  }
};

// Read and written, the fastest way to copy.
float copy_gigabytes_per_second(int multiprocessors) {
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  const DeviceArray from(kBytes), to(kBytes);
  float us = 1e9f;
  for (const app::CopyMethod& method : app::kCopyMethods)
    us = std::min(us, microseconds(4, [&](cudaStream_t stream) {
                    check(app::launch_copy(method, to.bytes(), from.bytes(), kBytes, multiprocessors, stream));
                  }));
  return 2.0f * static_cast<float>(kBytes) / us / 1e3f;
}

struct Best {
  float us = 1e9f;
  Sharing sharing;
};

Best best_of(Params params, int multiprocessors, bool writes_messages) {
  Best best;
  const int steps = std::clamp(25600 / params.tokens, 8, 100);
  for (const int blocks : {multiprocessors, 2 * multiprocessors})
    for (const int sixths : {1, 2, 3, 4}) {
      if (!writes_messages && sixths != 1) continue;
      for (const int write_threads : {32, 64, 128, 256})
        for (const int lay_threads : {32, 64, 128}) {
          if (!writes_messages && write_threads != 32) continue;
          params.sharing = {blocks, writes_messages ? blocks * sixths / 6 : 0, write_threads, lay_threads};
          const float us = microseconds(steps, [&](cudaStream_t stream) { launch(params, stream); });
          if (us < best.us) best = {us, params.sharing};
        }
    }
  return best;
}

void measure(const RoundShape& shape, int tokens, int multiprocessors, float copies) {
  const Routing routing(shape, tokens);
  Params p;
  p.tokens = tokens;
  p.messages = static_cast<int>(routing.first_row.size()) - 1;
  p.token_vectors = shape.hidden / 8;
  p.message_vectors = shape.hidden / 16;
  const auto row_bytes = static_cast<std::size_t>(shape.hidden);
  p.slot = HeapMap::whole_lines(row_bytes);
  const std::size_t in_bytes = 2 * row_bytes * static_cast<std::size_t>(tokens);
  const std::size_t message_bytes = row_bytes * static_cast<std::size_t>(p.messages);
  const std::size_t out_bytes = row_bytes * routing.rows.size();
  const DeviceArray in(in_bytes), slots(p.slot * static_cast<std::size_t>(p.messages)), out(out_bytes);
  const DeviceArray first_row(routing.first_row), rows(routing.rows);
  p.in = in.bytes();
  p.slots = slots.bytes();
  p.out = out.bytes();
  p.first_row = reinterpret_cast<const std::uint32_t*>(first_row.bytes());
  p.rows = reinterpret_cast<const std::uint32_t*>(rows.bytes());
  const Best all = best_of(p, multiprocessors, true);
  const Best rows_alone = best_of(p, multiprocessors, false);
  const double bytes = static_cast<double>(in_bytes + 2 * message_bytes + out_bytes);
  std::printf(
      "{\"memory\": \"dispatch\", \"ranks\": %d, \"hidden\": %d, \"top_k\": %d, \"experts\": %d, \"n\": %d, "
      "\"messages\": %d, \"rows\": %zu, \"bytes\": %.0f, \"us\": %.2f, \"rows_alone_us\": %.2f, "
      "\"at_copy_rate_us\": %.2f, \"copy_gb_s\": %.0f, \"blocks\": %d, \"writers\": %d, \"write_threads\": %d, "
      "\"lay_threads\": %d}\n",
      shape.ranks, shape.hidden, shape.top_k, shape.experts, tokens, p.messages, routing.rows.size(), bytes,
      static_cast<double>(all.us), static_cast<double>(rows_alone.us), bytes / static_cast<double>(copies) / 1e3,
      static_cast<double>(copies), all.sharing.blocks, all.sharing.writers, all.sharing.write_threads,
      all.sharing.lay_threads);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "usage: memory_bench RANKS HIDDEN TOP_K EXPERTS TOKENS [TOKENS ...]\n");
    return 2;
  }
  RoundShape shape;
  std::vector<int> all;
  try {
    shape.ranks = app::whole_number("RANKS", argv[1], 1, kMaxRanks);
    shape.hidden = app::whole_number("HIDDEN", argv[2], 16, app::kAnyNumber, 16);
    shape.experts = app::whole_number("EXPERTS", argv[4], shape.ranks);
    shape.top_k = app::whole_number("TOP_K", argv[3], 1, std::min(shape.experts, kMaxTopK));
    for (int arg = 5; arg < argc; ++arg)
      all.push_back(app::whole_number("TOKENS", argv[arg], 1, app::kAnyNumber / shape.ranks));
  } catch (const Error& error) {
    std::fprintf(stderr, "memory_bench: %s\n", error.what());
    return 2;
  }
  int multiprocessors = 0;
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  const float copies = copy_gigabytes_per_second(multiprocessors);
  for (const int tokens : all) measure(shape, tokens, multiprocessors, copies);
  return 0;
}
