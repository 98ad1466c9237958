// Hooks inside kernels that also put to GPUs of other nodes, by NVSHMEM: a process for each GPU. The router's weights
// come from scores, and an epilogue adds the unrounded sums to the residual stream.
//
//   mpirun -np 4 example_nvshmem_router_and_epilogue       nodes are what NVSHMEM can map
//   mpirun -np 4 example_nvshmem_router_and_epilogue 2     two nodes of two, as if they were hosts
#include <cuda_bf16.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "../cuda/gpu_memory.h"
#include "ferry/cuda/compiled_nvshmem_exchange.cuh"

namespace {

constexpr int kHidden = 96;
constexpr int kTokens = 40;
constexpr int kExpertsOfARank = 2;

struct Hooks {
  const float* scores;  // [token, k]
  float* residual;      // [token, hidden]

  __device__ float router_weight(int token, int k) const {
    return scores[2 * token + k] / (scores[2 * token] + scores[2 * token + 1]);
  }
  __device__ void epilogue(int token, int column, const float* sums, int count) const {
    for (int i = 0; i < count; ++i) residual[token * kHidden + column + i] += sums[i];
  }
};

// All values are small whole numbers, so that sums are exact.
float token_value(int rank, int token, int column) { return static_cast<float>(1 + (rank + token + column) % 8); }
__host__ __device__ float factor_of(int expert) { return static_cast<float>(1 + expert % 8); }
int expert_of(int rank, int token, int k, int experts) { return (rank + token + k * (experts / 2)) % experts; }
float score_of(int token, int k) { return token % 2 == 0 && k == 0 ? 3.0f : 1.0f; }

// The experts: each multiplies its rows by a number of its own. A grouped matmul would run here. One block is one row.
__global__ void run_experts(__nv_bfloat16* rows, const std::uint32_t* row_offsets, int first_expert) {
  int local = 0;
  while (local < kExpertsOfARank && blockIdx.x >= row_offsets[local + 1]) ++local;
  if (local == kExpertsOfARank) return;
  __nv_bfloat16* row = rows + static_cast<std::size_t>(blockIdx.x) * kHidden;
  for (unsigned column = threadIdx.x; column < kHidden; column += blockDim.x)
    row[column] = __float2bfloat16(__bfloat162float(row[column]) * factor_of(first_expert + local));
}

struct RankInput {
  std::vector<float> tokens;
  std::vector<std::int32_t> ids;
  std::vector<float> scores;
};
RankInput make_input(int rank, int experts) {
  RankInput input;
  for (int token = 0; token < kTokens; ++token) {
    for (int column = 0; column < kHidden; ++column) input.tokens.push_back(token_value(rank, token, column));
    for (int k = 0; k < 2; ++k) {
      input.ids.push_back(expert_of(rank, token, k, experts));
      input.scores.push_back(score_of(token, k));
    }
  }
  return input;
}

bool is_right(const std::vector<float>& residual, int rank, int experts) {
  for (int token = 0; token < kTokens; ++token)
    for (int column = 0; column < kHidden; ++column) {
      const float share = score_of(token, 0) / (score_of(token, 0) + score_of(token, 1));
      const float value = token_value(rank, token, column);
      const float first = value * factor_of(expert_of(rank, token, 0, experts));
      const float second = value * factor_of(expert_of(rank, token, 1, experts));
      const float expected = 1000.0f + share * first + (1.0f - share) * second;
      if (residual[static_cast<std::size_t>(token * kHidden + column)] != expected) return false;
    }
  return true;
}

bool run_rank(ferry::World& world) {
  const ferry::Shape shape{.ranks = world.size(),
                           .experts = kExpertsOfARank * world.size(),
                           .top_k = 2,
                           .max_tokens = kTokens,
                           .hidden = kHidden};
  ferry::cuda::CompiledNvshmemExchange<ferry::Bf16, Hooks> exchange(world, shape,
                                                                    {.reduction = ferry::Reduction::exact});
  const RankInput input = make_input(world.rank(), shape.experts);
  const OnGpu<float> tokens(input.tokens);
  const OnGpu<std::int32_t> ids(input.ids);
  const OnGpu<float> scores(input.scores);
  const OnGpu<float> residual(std::vector<float>(kTokens * kHidden, 1000.0f));
  const GpuRows rows(exchange.exchange().layout());
  const Hooks hooks{scores.data(), residual.data()};
  world.barrier();  // no GPU allocates memory while the kernels of others wait for it

  const ferry::DispatchOutput arrived = rows.outputs();
  exchange.dispatch({.tokens = {tokens.data(), ferry::DType::f32, {kTokens, kHidden}},
                     .topk_ids = {ids.data(), ferry::DType::i32, {kTokens, 2}}},
                    arrived, hooks);
  const auto capacity = static_cast<unsigned>(arrived.payload.shape[0]);
  run_experts<<<capacity, 32>>>(arrived.payload.as<__nv_bfloat16>(), arrived.row_offsets.as<std::uint32_t>(),
                                kExpertsOfARank * world.rank());
  exchange.combine({.rows = arrived.payload}, {}, hooks);
  return is_right(residual.read(), world.rank(), shape.experts);
}

int run(const ferry::ProcessPlace& place, int nodes) {
  const int of_this_host = place.local_rank >= 0 ? place.local_rank : place.rank;
  ferry::NvshmemOptions options{.place = place, .device = ferry::num_cuda_devices() == 1 ? 0 : of_this_host};
  options.nodes = nodes;
  require_success(cudaSetDevice(options.device));
  const auto world = ferry::make_nvshmem_world(options);
  const bool right = run_rank(*world);
  std::printf("rank %d of %d got what it should%s\n", world->rank(), world->size(), right ? "" : " not");
  return right ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  ferry::ProcessPlace place;
  try {
    place = ferry::place_of_process();
  } catch (const ferry::Error& error) {
    std::printf("skipped: %s\n", error.what());
    return 77;
  }
  if (ferry::num_cuda_devices() == 0 || place.size < 2) {
    std::printf("skipped: needs 2 processes with a GPU each; this is 1 of %d, and sees %d GPUs\n", place.size,
                ferry::num_cuda_devices());
    return 77;
  }
  try {
    return run(place, count > 1 ? std::atoi(arguments[1]) : 0);
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
