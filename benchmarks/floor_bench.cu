// The floor of a round: the messages of a dispatch, or the results of a combine, of n tokens on each GPU of this
// machine, sent, signalled, waited for and copied to where they belong, and nothing else: no routing, no ranking, no
// layout, no encoding, nothing read on the sender's side. And its parts: an empty launch, signals alone, and what only
// sends, with its signals and without. By bulk copies and by stores, each in the best of many ways to share the work
// out. Prints one JSON line per case. Never checks what arrived.
//
//   floor_bench HIDDEN TOP_K TOKENS [TOKENS ...]
//
// HIDDEN: a multiple of 32, at most 16384, since a block has a message or a result in its shared memory.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "benchmarks/numbers.h"
#include "ferry/detail/base/order.h"
#include "ferry/detail/cuda/team/ptx.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"
#include "ferry/detail/layout/heap_map.h"
#include "ferry/shape.h"

namespace {

using namespace ferry;

constexpr int kReplays = 4;
constexpr int kMostHidden = 16384;
constexpr int kSharedBytes = 2 * kMostHidden;  // of a result, the larger one

enum class What { launch, signals, sends, dispatch, combine };

struct Case {
  What what;
  int messages;              // from each rank to each, itself included
  int rows = 0;              // that a rank gets, where `what` is dispatch
  std::uint32_t bytes = 16;  // of a message
  std::uint32_t slot = 128;  // from one message to the next
  bool stores = false;       // messages by stores of all threads, and not by bulk copies
  bool signals = true;
  int steps = 100;                           // of a graph
  int senders = 0, blocks = 0, threads = 0;  // a block sends or receives a message at a time
};

struct Params {
  Case how;
  int ranks = 0, rank = 0;
  Epoch step = 0;
  const Epoch* base = nullptr;
  std::byte* slots[kMaxGpuRanks] = {};  // at each rank, from each rank
  SignalWord* words[kMaxGpuRanks] = {};
  std::byte* out = nullptr;
  int* missing = nullptr;  // set where a message did not come
};

__device__ void wait_until_there(const SignalWord& word, Epoch epoch, int* missing) {
  for (int look = 0; look < 10'000'000; ++look)
    if (load_acquire(word) >= epoch) return;
  *missing = 1;
}

__device__ void copy(std::byte* to, const std::byte* from, std::uint32_t bytes) {
  for (std::uint32_t at = 16 * threadIdx.x; at < bytes; at += 16 * blockDim.x)
    *reinterpret_cast<uint4*>(to + at) = *reinterpret_cast<const uint4*>(from + at);
}

__device__ void send(const Params& p, std::byte* buffer, int message, Epoch epoch) {
  const auto place =
      static_cast<std::size_t>(p.rank) * static_cast<std::size_t>(p.how.messages) + static_cast<std::size_t>(message);
  const int thread = static_cast<int>(threadIdx.x);
  if (p.how.what == What::signals) {
    if (thread < p.ranks) store_release(p.words[thread][place], epoch);
    return;
  }
  if (p.how.stores) {
    for (std::uint32_t at = 16 * threadIdx.x; at < p.how.bytes; at += 16 * blockDim.x)
      for (int peer = 0; peer < p.ranks; ++peer)
        *reinterpret_cast<uint4*>(p.slots[peer] + place * p.how.slot + at) = *reinterpret_cast<uint4*>(buffer + at);
    __syncthreads();
  } else if (thread < p.ranks) {
    ptx::bulk_store(p.slots[thread] + place * p.how.slot, buffer, p.how.bytes);
    ptx::bulk_commit();
    ptx::bulk_wait<0>();
  }
  if (p.how.signals && thread < p.ranks) store_release(p.words[thread][place], epoch);
}

// One message, or all results of a token.
__device__ void receive(const Params& p, int index, Epoch epoch) {
  const bool sums = p.how.what == What::combine;
  const int first = sums ? index * p.ranks : index, count = sums ? p.ranks : 1;
  const auto place_of = [&](int i) {  // messages of all ranks alternate
    return static_cast<std::size_t>(i % p.ranks) * static_cast<std::size_t>(p.how.messages) +
           static_cast<std::size_t>(i / p.ranks);
  };
  const int thread = static_cast<int>(threadIdx.x);
  __syncthreads();
  if (thread < count) wait_until_there(p.words[p.rank][place_of(first + thread)], epoch, p.missing);
  __syncthreads();
  if (p.how.what == What::signals) return;
  const std::byte* slots = p.slots[p.rank];
  if (sums) {
    for (std::uint32_t at = 16 * threadIdx.x; at < p.how.bytes; at += 16 * blockDim.x) {
      uint4 sum{};
      for (int i = 0; i < count; ++i) {
        const uint4 one = *reinterpret_cast<const uint4*>(slots + place_of(first + i) * p.how.slot + at);
        sum = {sum.x + one.x, sum.y + one.y, sum.z + one.z, sum.w + one.w};
      }
      *reinterpret_cast<uint4*>(p.out + static_cast<std::size_t>(index) * p.how.bytes + at) = sum;
    }
    return;
  }
  const auto all = static_cast<long long>(p.how.messages) * p.ranks;
  for (long long row = p.how.rows * static_cast<long long>(index) / all;
       row < p.how.rows * static_cast<long long>(index + 1) / all; ++row)
    copy(p.out + static_cast<std::size_t>(row) * p.how.bytes, slots + place_of(index) * p.how.slot, p.how.bytes);
}

__global__ void __launch_bounds__(1024, 2) round_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(128) std::byte buffer[];
  ptx::await_earlier_kernels();
  if (p.how.what == What::launch) return;
  const Epoch epoch = *p.base + p.step;
  const int block = static_cast<int>(blockIdx.x);
  for (int i = block; block < p.how.senders && i < p.how.messages; i += p.how.senders) send(p, buffer, i, epoch);
  if (p.how.what == What::sends) return;
  const bool apart = p.how.blocks > p.how.senders;
  const int first = apart ? p.how.senders : 0;
  const int items = p.how.what == What::combine ? p.how.messages : p.how.messages * p.ranks;
  for (int i = block - first; block >= first && i < items; i += p.how.blocks - first) receive(p, i, epoch);
  ptx::let_next_kernel_launch();
}

void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "floor_bench: %s\n", cudaGetErrorString(status));
  std::exit(1);
}

template <class T>
T* device_array(std::size_t count) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, count * sizeof(T)));
  check(cudaMemset(memory, 0, count * sizeof(T)));
  return static_cast<T*>(memory);
}

class Gpus {
 public:
  Gpus(std::size_t most_messages, std::size_t most_bytes, std::size_t out_bytes) {
    int ranks = 0;
    check(cudaGetDeviceCount(&ranks));
    params_.resize(static_cast<std::size_t>(std::min(ranks, kMaxGpuRanks)));
    const std::size_t all = most_messages * params_.size();
    for (std::size_t rank = 0; rank < params_.size(); ++rank) {
      check(cudaSetDevice(static_cast<int>(rank)));
      for (std::size_t peer = 0; peer < params_.size(); ++peer)
        if (peer != rank) check(cudaDeviceEnablePeerAccess(static_cast<int>(peer), 0));
      std::byte* slots = device_array<std::byte>(all * most_bytes);
      SignalWord* words = device_array<SignalWord>(all);
      base_.push_back(device_array<Epoch>(1));
      params_[rank].out = device_array<std::byte>(out_bytes);
      params_[rank].base = base_.back();
      params_[rank].missing = device_array<int>(1);
      params_[rank].rank = static_cast<int>(rank);
      params_[rank].ranks = static_cast<int>(params_.size());
      for (Params& p : params_) p.slots[rank] = slots, p.words[rank] = words;
      check(cudaFuncSetAttribute(&round_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
    }
  }
  int ranks() const { return static_cast<int>(params_.size()); }

  // Whether all blocks run at once, as they wait for each other.
  bool fits(const Case& how) const {
    int blocks = 0;
    int multiprocessors = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &round_kernel, how.threads,
                                                        HeapMap::whole_lines(how.bytes)));
    check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    return how.blocks <= blocks * multiprocessors;
  }

  float microseconds(const Case& how) {
    std::vector<float> us(params_.size());
    std::barrier begin(static_cast<std::ptrdiff_t>(params_.size()));
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < params_.size(); ++rank)
      threads.emplace_back([&, rank] { us[rank] = time_graph(rank, how, begin); });
    for (std::thread& thread : threads) thread.join();
    epoch_ += static_cast<Epoch>(how.steps) * (kReplays + 1);
    return *std::max_element(us.begin(), us.end());
  }

 private:
  void launch(const Params& params, cudaStream_t stream) const {
    cudaLaunchAttribute pdl{};
    pdl.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    pdl.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(params.how.blocks));
    config.blockDim = dim3(static_cast<unsigned>(params.how.threads));
    config.dynamicSmemBytes = HeapMap::whole_lines(params.how.bytes);
    config.stream = stream;
    config.attrs = &pdl;
    config.numAttrs = 1;
    check(cudaLaunchKernelEx(&config, &round_kernel, params));
  }

  float time_graph(std::size_t rank, const Case& how, std::barrier<>& begin) {
    check(cudaSetDevice(static_cast<int>(rank)));
    Params params = params_[rank];
    params.how = how;
    cudaStream_t stream = nullptr;
    cudaEvent_t from = nullptr, to = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    check(cudaStreamCreate(&stream));
    check(cudaEventCreate(&from));
    check(cudaEventCreate(&to));
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int step = 1; step <= how.steps; ++step) {
      params.step = static_cast<Epoch>(step);
      launch(params, stream);
    }
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphInstantiate(&ready, graph, 0));
    std::vector<float> us;
    for (int replay = 0; replay <= kReplays; ++replay) {
      const Epoch base = epoch_ + static_cast<Epoch>(replay * how.steps);
      check(cudaMemcpy(base_[rank], &base, sizeof base, cudaMemcpyHostToDevice));
      begin.arrive_and_wait();
      check(cudaEventRecord(from, stream));
      check(cudaGraphLaunch(ready, stream));
      check(cudaEventRecord(to, stream));
      check(cudaStreamSynchronize(stream));
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, from, to));
      if (replay > 0) us.push_back(1000 * milliseconds / static_cast<float>(how.steps));
    }
    int missing = 0;
    check(cudaMemcpy(&missing, params.missing, sizeof missing, cudaMemcpyDeviceToHost));
    if (missing != 0) {
      std::fprintf(stderr, "floor_bench: GPU %zu: a message did not come\n", rank);
      std::exit(1);
    }
    check(cudaGraphExecDestroy(ready));
    check(cudaGraphDestroy(graph));
    check(cudaEventDestroy(to));
    check(cudaEventDestroy(from));
    check(cudaStreamDestroy(stream));
    std::nth_element(us.begin(), us.begin() + kReplays / 2, us.end());
    return us[kReplays / 2];
  }

  std::vector<Params> params_;
  std::vector<Epoch*> base_;
  Epoch epoch_ = 0;
};

const char* name_of(What what) {
  switch (what) {
    case What::launch:
      return "launch";
    case What::signals:
      return "signals";
    case What::sends:
      return "sends";
    case What::dispatch:
      return "dispatch";
    case What::combine:
      return "combine";
  }
  return "";
}

// The fastest of several ways to share the work out.
void measure(Gpus& gpus, Case how, int tokens) {
  how.steps = std::clamp(25600 / tokens, 10, 100);
  float best = 1e9f;
  Case chosen = how;
  for (const int threads : {128, 256, 512, 1024})
    for (const int blocks : {132, 264, 528, 1056}) {  // an H200 has 132 multiprocessors
      Case now = how;
      now.threads = threads;
      now.blocks = blocks;
      if (!gpus.fits(now)) continue;
      for (const int senders : {blocks, blocks / 2, 66, 44}) {
        if (senders > blocks) continue;
        now.senders = senders;
        const float us = gpus.microseconds(now);
        if (us < best) best = us, chosen = now;
      }
    }
  if (chosen.blocks == 0) {
    std::fprintf(stderr, "floor_bench: %s of %u bytes: none of the numbers of blocks in measure() runs at once here\n",
                 name_of(how.what), how.bytes);
    std::exit(1);
  }
  std::printf(
      "{\"floor\": \"%s\", \"ranks\": %d, \"tokens\": %d, \"messages\": %d, \"bytes\": %u, \"slot\": %u, "
      "\"by\": \"%s\", \"signals\": %s, \"blocks\": %d, \"senders\": %d, \"threads\": %d, \"us\": %.2f}\n",
      name_of(how.what), gpus.ranks(), tokens, how.messages, how.bytes, how.slot, how.stores ? "stores" : "copies",
      how.signals ? "true" : "false", chosen.blocks, chosen.senders, chosen.threads, static_cast<double>(best));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: floor_bench HIDDEN TOP_K TOKENS [TOKENS ...]\n");
    return 2;
  }
  int hidden = 0, top_k = 0;
  std::vector<int> all;
  try {
    hidden = app::whole_number("HIDDEN", argv[1], 32, kMostHidden, 32);
    top_k = app::whole_number("TOP_K", argv[2], 1, kMaxTopK);
    for (int arg = 3; arg < argc; ++arg)
      all.push_back(app::whole_number("TOKENS", argv[arg], 1, app::kAnyNumber / kMaxGpuRanks));
  } catch (const Error& error) {
    std::fprintf(stderr, "floor_bench: %s\n", error.what());
    return 2;
  }
  const int most = *std::max_element(all.begin(), all.end());
  // Room for rows, which have scales, or for sums.
  const std::size_t out = 2 * static_cast<std::size_t>(most) * static_cast<std::size_t>(top_k * hidden);
  Gpus gpus(static_cast<std::size_t>(most), HeapMap::whole_lines(2 * static_cast<std::uint32_t>(hidden)), out);
  for (const int tokens : all) {
    // A token goes once to each rank that has one of its experts.
    const double reached = 1 - std::pow(1 - 1.0 / gpus.ranks(), top_k);
    const int messages = std::max(1, static_cast<int>(reached * tokens));
    const int row = (hidden + hidden / 32 + 15) / 16 * 16;  // fp8_block128: a scale of 4 bytes for each 128
    const auto bytes = static_cast<std::uint32_t>(row), result_bytes = static_cast<std::uint32_t>(2 * hidden);
    const auto slot = static_cast<std::uint32_t>(HeapMap::whole_lines(bytes));
    const Case message{.what = What::sends, .messages = messages, .bytes = bytes, .slot = slot};
    const Case result{.what = What::sends,
                      .messages = messages,
                      .bytes = result_bytes,
                      .slot = static_cast<std::uint32_t>(HeapMap::whole_lines(result_bytes))};
    measure(gpus, {.what = What::launch, .messages = messages}, tokens);
    measure(gpus, {.what = What::signals, .messages = messages}, tokens);
    Case not_at_lines = message;
    not_at_lines.slot = bytes;
    not_at_lines.signals = false;
    measure(gpus, not_at_lines, tokens);
    for (const What round : {What::dispatch, What::combine})
      for (const bool stores : {false, true}) {
        Case each = round == What::dispatch ? message : result;
        each.stores = stores;
        for (const bool signals : {false, true}) {
          each.what = What::sends;
          each.signals = signals;
          measure(gpus, each, tokens);
        }
        each.what = round;
        each.rows = tokens * top_k;
        measure(gpus, each, tokens);
      }
  }
  return 0;
}
