// The input scale of NVFP4 as a hook: it is computed where the tokens are encoded, from a maximum that an earlier
// kernel left on the GPU. The rows are those that the library's own kernel makes of the finished value.
#include <cmath>
#include <vector>

#include "ferry/cuda/compiled_exchange.cuh"
#include "gpu_memory.h"

namespace {

constexpr int kHidden = 128;
constexpr int kTokens = 9;
constexpr float kLargest = 6.0f * 448.0f;  // of a code times a scale

struct Hooks {
  const float* amax;  // over the tokens of all ranks
  __device__ float input_scale() const { return kLargest / *amax; }
};

bool run_rank(ferry::World& world) {
  const ferry::Shape shape{
      .ranks = world.size(), .experts = 2 * world.size(), .top_k = 1, .max_tokens = kTokens, .hidden = kHidden};
  ferry::cuda::CompiledExchange<ferry::Nvfp4, Hooks> hooked(world, shape);
  ferry::Exchange plain(world, shape, {.format = ferry::format_named("nvfp4")});

  std::vector<float> values;
  std::vector<std::int32_t> ids;
  for (int token = 0; token < kTokens; ++token) {
    for (int column = 0; column < kHidden; ++column)
      values.push_back(std::sin(static_cast<float>(token * kHidden + column)) * 5.0f);
    ids.push_back((world.rank() + token) % shape.experts);
  }
  const OnGpu<float> tokens(values);
  const OnGpu<std::int32_t> gpu_ids(ids);
  const OnGpu<float> amax(std::vector<float>{5.0f});
  const OnGpu<float> scale(std::vector<float>{kLargest / 5.0f});
  const GpuRows hooked_rows(hooked.exchange().layout());
  const GpuRows plain_rows(plain.layout());
  world.barrier();  // no GPU allocates memory while the kernels of others wait for it

  ferry::DispatchInput in{.tokens = {tokens.data(), ferry::DType::f32, {kTokens, kHidden}},
                          .topk_ids = {gpu_ids.data(), ferry::DType::i32, {kTokens, 1}}};
  hooked.dispatch(in, hooked_rows.outputs(), Hooks{amax.data()});
  in.input_scale = scale.data();
  plain.dispatch(in, plain_rows.outputs());
  return hooked_rows.read(&ferry::DispatchOutput::payload) == plain_rows.read(&ferry::DispatchOutput::payload) &&
         hooked_rows.read(&ferry::DispatchOutput::scales) == plain_rows.read(&ferry::DispatchOutput::scales) &&
         hooked_rows.read(&ferry::DispatchOutput::src_info) == plain_rows.read(&ferry::DispatchOutput::src_info);
}

}  // namespace

int main() { return all_gpus_right(run_rank); }
