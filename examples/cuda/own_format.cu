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
  const ferry::RowLayout& layout = exchange.exchange().layout();
  const std::int64_t capacity = layout.min_row_capacity, groups = layout.groups;
  const OnGpu<float> gpu_tokens(tokens), scales(static_cast<std::size_t>(capacity) * kScales);
  const OnGpu<std::int32_t> gpu_ids(ids), expert_ids(static_cast<std::size_t>(groups)),
      src_info(static_cast<std::size_t>(capacity) * 2);
  const OnGpu<std::uint8_t> payload(static_cast<std::size_t>(capacity) * kHidden);
  const OnGpu<std::uint32_t> row_offsets(static_cast<std::size_t>(groups) + 1);
  world.barrier();  // no GPU allocates memory while the kernels of others wait for it

  exchange.dispatch({.tokens = {gpu_tokens.data(), ferry::DType::f32, {kTokens, kHidden}},
                     .topk_ids = {gpu_ids.data(), ferry::DType::i32, {kTokens, 1}}},
                    {.payload = {payload.data(), ferry::DType::u8, {capacity, kHidden}},
                     .scales = {scales.data(), ferry::DType::f32, {capacity, kScales}},
                     .row_offsets = {row_offsets.data(), ferry::DType::u32, {groups + 1}},
                     .expert_ids = {expert_ids.data(), ferry::DType::i32, {groups}},
                     .src_info = {src_info.data(), ferry::DType::i32, {capacity, 2}}});

  const std::vector<std::uint32_t> offsets = row_offsets.read();
  const std::vector<std::int32_t> sources = src_info.read();
  const std::vector<std::uint8_t> codes = payload.read();
  const std::vector<float> row_scales = scales.read();
  bool right = true;
  for (std::size_t row = 0; row < offsets.back(); ++row)
    right = right && is_encoded(tokens.data() + sources[2 * row] * kHidden, codes.data() + row * kHidden,
                                row_scales.data() + row * kScales);
  return right;
}

}  // namespace

int main() { return all_gpus_right(run_rank); }
