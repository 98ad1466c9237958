// The exchange of a decode step, as an inference engine would have it: a thread and a stream for each GPU; dispatch,
// experts and combine captured in a CUDA graph once, and replayed in each step with the tokens and ids that earlier
// kernels of the step left in the same tensors. The host waits for nothing between steps, and max_blocks leaves
// multiprocessors to other kernels. Dispatch sends FP8; the checks stand for the rest of the model.
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstdlib>
#include <numeric>

#include "gpu_memory.h"

namespace {

constexpr int kTokens = 32;  // on each GPU
constexpr int kTopK = 4;
constexpr int kHidden = 2048;
constexpr int kExpertsOfRank = 8;
constexpr int kSteps = 100;
constexpr int kMaxBlocks = 24;
constexpr int kThreads = 256;

// What the model decides: formulas here, whose sums are exact in bf16.
struct Model {
  int rank, experts;
  __device__ int expert(int step, int token, int k) const {
    return (5 * step + 3 * rank + 7 * token + k * (experts / kTopK)) % experts;
  }
  __device__ float value(int step, int token, int column) const {
    return static_cast<float>(1 << (step + rank + token + column) % 4);
  }
  __device__ static float weight(int k) { return k < 2 ? 0.5f / static_cast<float>(k + 1) : 0.125f; }
  __device__ static float factor(int expert) { return static_cast<float>(1 + expert % 8); }
};

// In the place of attention and router: a block for each token.
__global__ void make_tokens(Model model, int step, __nv_bfloat16* tokens, std::int32_t* ids, float* weights) {
  const int token = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  for (int column = thread; column < kHidden; column += kThreads)
    tokens[token * kHidden + column] = __float2bfloat16(model.value(step, token, column));
  if (thread >= kTopK) return;
  ids[token * kTopK + thread] = model.expert(step, token, thread);
  weights[token * kTopK + thread] = Model::weight(thread);
}

// In the place of the grouped matmuls: expert number x multiplies by factor(x). How many rows came is read here, on the
// GPU: the same launch, of any number of blocks, serves every step.
__global__ void run_experts(const __nv_fp8_e4m3* payload, const float* scales, std::int64_t capacity,
                            const std::uint32_t* row_offsets, int groups, int first_expert, __nv_bfloat16* results) {
  for (int group = 0; group < groups; ++group)
    for (std::int64_t row = row_offsets[group] + blockIdx.x; row < row_offsets[group + 1]; row += gridDim.x)
      for (int column = static_cast<int>(threadIdx.x); column < kHidden; column += kThreads) {
        const float value = static_cast<float>(payload[row * kHidden + column]) * scales[column / 128 * capacity + row];
        results[row * kHidden + column] = __float2bfloat16(Model::factor(first_expert + group) * value);
      }
}

__global__ void count_wrong(Model model, int step, const __nv_bfloat16* sums, int* wrong) {
  const int token = static_cast<int>(blockIdx.x);
  float factor = 0;
  for (int k = 0; k < kTopK; ++k) factor += Model::weight(k) * Model::factor(model.expert(step, token, k));
  for (int column = static_cast<int>(threadIdx.x); column < kHidden; column += kThreads)
    if (__bfloat162float(sums[token * kHidden + column]) != factor * model.value(step, token, column))
      atomicAdd(wrong, 1);
}

// The number of wrong sums on this rank.
int run_rank(ferry::World& world) {
  require_success(cudaSetDevice(world.rank()));
  const ferry::Shape shape{.ranks = world.size(),
                           .experts = kExpertsOfRank * world.size(),
                           .top_k = kTopK,
                           .max_tokens = kTokens,
                           .hidden = kHidden};
  ferry::Exchange exchange(world, shape, {.format = ferry::format_named("fp8_block128")});

  const ferry::RowLayout& layout = exchange.layout();
  const std::int64_t capacity = layout.min_row_capacity, groups = layout.groups;  // rows of the worst case
  const OnGpu<__nv_bfloat16> tokens(kTokens * kHidden), results(capacity * kHidden), sums(kTokens * kHidden);
  const OnGpu<std::int32_t> ids(kTokens * kTopK), expert_ids(groups), src_info(capacity * 2);
  const OnGpu<float> weights(kTokens * kTopK), scales(kHidden / 128 * capacity);
  const OnGpu<__nv_fp8_e4m3> payload(capacity * layout.payload_row_bytes);
  const OnGpu<std::uint32_t> row_offsets(groups + 1);
  const OnGpu<int> wrong(1);

  const ferry::DispatchInput in{.tokens = {tokens.data(), ferry::DType::bf16, {kTokens, kHidden}},
                                .topk_ids = {ids.data(), ferry::DType::i32, {kTokens, kTopK}},
                                .topk_weights = {weights.data(), ferry::DType::f32, {kTokens, kTopK}}};
  const ferry::DispatchOutput rows{.payload = {payload.data(), ferry::DType::u8, {capacity, layout.payload_row_bytes}},
                                   .scales = {scales.data(), layout.scale_dtype, layout.scales_shape(capacity)},
                                   .row_offsets = {row_offsets.data(), ferry::DType::u32, {groups + 1}},
                                   .expert_ids = {expert_ids.data(), ferry::DType::i32, {groups}},
                                   .src_info = {src_info.data(), ferry::DType::i32, {capacity, 2}}};

  cudaStream_t stream = nullptr;
  cudaGraph_t captured = nullptr;
  cudaGraphExec_t graph = nullptr;
  require_success(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const ferry::CallOptions call{.stream = stream, .max_blocks = kMaxBlocks};
  require_success(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  exchange.dispatch(in, rows, call);
  run_experts<<<64, kThreads, 0, stream>>>(payload.data(), scales.data(), capacity, row_offsets.data(), layout.groups,
                                           ferry::first_expert(shape, world.rank()), results.data());
  exchange.combine({.rows = {results.data(), ferry::DType::bf16, {capacity, kHidden}}},
                   {.tokens = {sums.data(), ferry::DType::bf16, {kTokens, kHidden}}}, call);
  require_success(cudaStreamEndCapture(stream, &captured));
  require_success(cudaGraphInstantiate(&graph, captured, 0));
  world.barrier();  // no GPU allocates memory while the kernels of others wait for it

  const Model model{world.rank(), shape.experts};
  for (int step = 0; step < kSteps; ++step) {
    make_tokens<<<kTokens, kThreads, 0, stream>>>(model, step, tokens.data(), ids.data(), weights.data());
    require_success(cudaGraphLaunch(graph, stream));
    count_wrong<<<kTokens, kThreads, 0, stream>>>(model, step, sums.data(), wrong.data());
    require_success(cudaGetLastError());
  }
  require_success(cudaStreamSynchronize(stream));
  exchange.check();  // what kernels found, such as a rank that did not come: a replay makes no call that could throw it

  require_success(cudaGraphExecDestroy(graph));
  require_success(cudaGraphDestroy(captured));
  require_success(cudaStreamDestroy(stream));
  return wrong.read().front();
}

}  // namespace

int main() {
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);  // no kernel is loaded while another one waits for a peer
  std::vector<int> devices(static_cast<std::size_t>(ferry::num_cuda_devices()));
  if (devices.empty()) {
    std::printf("decode_step: skipped: no GPU was found\n");
    return 77;
  }
  std::iota(devices.begin(), devices.end(), 0);
  std::vector<int> wrong(devices.size());
  try {
    const auto worlds = ferry::make_cuda_worlds(devices);
    ferry::run_worlds(worlds, [&](ferry::World& world) {  // each on a thread of its own
      wrong[static_cast<std::size_t>(world.rank())] = run_rank(world);
    });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "decode_step: %s\n", error.what());
    return 1;
  }
  const int all = std::accumulate(wrong.begin(), wrong.end(), 0);
  std::printf("%zu GPUs, %d steps of %d tokens on each: %d wrong sums\n", devices.size(), kSteps, kTokens, all);
  return all == 0 ? 0 : 1;
}
