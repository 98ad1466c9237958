// Two hooks inside the kernels, as examples/epilogue_hook.cpp has them on the CPU: the router's weights come from
// scores while the routing is ranked, and an epilogue adds the unrounded sums to the residual stream. Neither the
// weights nor the sums are ever stored.
#include <vector>

#include "ferry/cuda/compiled_exchange.cuh"
#include "gpu_memory.h"

namespace {

constexpr int kHidden = 96;
constexpr int kTokens = 5;

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

bool run_rank(ferry::World& world) {
  const ferry::Shape shape{.ranks = world.size(), .experts = 7, .top_k = 2, .max_tokens = kTokens, .hidden = kHidden};
  ferry::cuda::CompiledExchange<ferry::Bf16, Hooks> exchange(world, shape);

  std::vector<std::uint16_t> tokens;
  std::vector<std::int32_t> ids;
  std::vector<float> scores;
  for (int token = 0; token < kTokens; ++token) {
    tokens.insert(tokens.end(), kHidden, 0x4000);  // 2.0
    ids.insert(ids.end(), {token, token + 2});
    scores.insert(scores.end(), {3.0f, 1.0f});
  }
  const OnGpu<std::uint16_t> gpu_tokens(tokens);
  const OnGpu<std::int32_t> gpu_ids(ids);
  const OnGpu<float> gpu_scores(scores);
  const OnGpu<float> residual(std::vector<float>(kTokens * kHidden, 1000.0f));
  const GpuRows rows(exchange.exchange().layout());
  const Hooks hooks{gpu_scores.data(), residual.data()};
  world.barrier();  // no GPU allocates memory while the kernels of others wait for it

  const ferry::DispatchOutput arrived = rows.outputs();
  exchange.dispatch({.tokens = {gpu_tokens.data(), ferry::DType::bf16, {kTokens, kHidden}},
                     .topk_ids = {gpu_ids.data(), ferry::DType::i32, {kTokens, 2}}},
                    arrived, hooks);
  // These experts hand their rows back as they are; a grouped matmul would run here.
  exchange.combine({.rows = arrived.payload}, {}, hooks);

  bool right = true;
  for (const float value : residual.read()) right = right && value == 1000.0f + 0.75f * 2.0f + 0.25f * 2.0f;
  return right;
}

}  // namespace

int main() { return all_gpus_right(run_rank); }
