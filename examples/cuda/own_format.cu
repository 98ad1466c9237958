// A token format of your own in the kernels of an exchange: int8_block64.h, which docs/adding-a-format.md explains. A
// dispatch encodes tokens on the GPU, and the rows that it lays out hold the bytes of the same encoder on the CPU.
#include <cmath>
#include <cstring>
#include <vector>

#include "../int8_block64.h"
#include "ferry/cuda/compiled_exchange.cuh"
#include "gpu_memory.h"

namespace {

constexpr int kHidden = 96;  // a whole block of 64 columns, and a short one
constexpr int kScales = 2;
constexpr int kTokens = 9;

// The same on every rank, so that the place of a row's token says what the row must hold.
std::vector<float> make_tokens() {
  std::vector<float> values;
  for (int i = 0; i < kTokens * kHidden; ++i) values.push_back(5.0f * std::sin(static_cast<float>(i)));
  return values;
}

// Whether the row has the codes and the scales that the CPU makes of its token.
bool is_encoded(const float* token, const std::uint8_t* codes, const float* scales) {
  alignas(16) std::byte payload[kHidden];
  float expected[kScales];
  ferry::any_format<Int8Block64>().encode(ferry::SerialGroup{}, {token, ferry::DType::f32}, kHidden, 1.0f, payload,
                                          reinterpret_cast<std::byte*>(expected));
  return std::memcmp(codes, payload, sizeof payload) == 0 && std::memcmp(scales, expected, sizeof expected) == 0;
}

bool run_rank(ferry::World& world) {
  const ferry::Shape shape{
      .ranks = world.size(), .experts = 2 * world.size(), .top_k = 1, .max_tokens = kTokens, .hidden = kHidden};
  ferry::cuda::CompiledExchange<Int8Block64> exchange(world, shape);

  const std::vector<float> tokens = make_tokens();
  std::vector<std::int32_t> ids;
  for (int token = 0; token < kTokens; ++token) ids.push_back((world.rank() + token) % shape.experts);
  const OnGpu<float> gpu_tokens(tokens);
  const OnGpu<std::int32_t> gpu_ids(ids);
  const GpuRows rows(exchange.exchange().layout());
  world.barrier();  // no GPU allocates memory while the kernels of others wait for it

  exchange.dispatch({.tokens = {gpu_tokens.data(), ferry::DType::f32, {kTokens, kHidden}},
                     .topk_ids = {gpu_ids.data(), ferry::DType::i32, {kTokens, 1}}},
                    rows.outputs());

  const auto offsets = rows.read_as<std::uint32_t>(&ferry::DispatchOutput::row_offsets);
  const auto sources = rows.read_as<std::int32_t>(&ferry::DispatchOutput::src_info);
  const auto codes = rows.read_as<std::uint8_t>(&ferry::DispatchOutput::payload);
  const auto scales = rows.read_as<float>(&ferry::DispatchOutput::scales);
  bool right = true;
  for (std::size_t row = 0; row < offsets.back(); ++row)
    right = right && is_encoded(tokens.data() + sources[2 * row] * kHidden, codes.data() + row * kHidden,
                                scales.data() + row * kScales);
  return right;
}

}  // namespace

int main() { return all_gpus_right(run_rank); }
