// Small kernels that every fabric shares, and how much shared memory a block needs.
#include "ferry/detail/cuda/launch/launch.h"

#include <algorithm>
#include <string>

#include "cuda/policy/team_sizes.h"
#include "ferry/detail/cuda/kernels/handles/keep_routing_kernel.cuh"
#include "ferry/detail/cuda/kernels/handles/masked_sources_kernels.cuh"
#include "ferry/detail/cuda/kernels/scales_kernel.cuh"
#include "ferry/detail/cuda/launch/launch.cuh"

namespace ferry::cuda {

int routing_words(const Plan& plan) {
  constexpr std::size_t kBitBytes = 32 * 1024;
  const std::size_t per_word = static_cast<std::size_t>(plan.shape.experts) * sizeof(std::uint32_t);
  return std::clamp(static_cast<int>(kBitBytes / per_word), 1, std::max(1, (plan.shape.max_tokens + 31) / 32));
}

// Shared memory of a RoutingMemory.
static std::size_t routing_bytes(const Plan& plan) {
  const auto experts = static_cast<std::size_t>(plan.shape.experts);
  return (static_cast<std::size_t>(routing_words(plan) + 2) * experts + 1) * sizeof(std::uint32_t);
}

static std::size_t row_start_bytes(const Plan& plan) {
  return static_cast<std::size_t>(row_start_words(plan)) * sizeof(std::uint32_t);
}

std::size_t scales_shared_bytes(const Plan& plan) { return kScalesSharedBytes + row_start_bytes(plan); }
int prepare_scales(const Plan& plan) {
  const std::size_t bytes = scales_shared_bytes(plan);
  return may_have_shared(reinterpret_cast<const void*>(&scales_kernel), bytes)
             ? prepare_kernel(&scales_kernel, kThreads, bytes)
             : 0;
}
void launch_scales(const ScalesParams& params, int blocks, bool pdl, cudaStream_t stream) {
  launch(&scales_kernel, params, {blocks, pdl, scales_shared_bytes(params.plan)}, stream);
}

void prepare_keep_routing() { prepare_kernel(&keep_routing_kernel, kThreads, 0); }
int keep_routing_blocks(const Plan& plan, int most_blocks) {
  constexpr int kMostBlocks = 64;
  const std::int64_t entries = std::int64_t{plan.shape.ranks} * plan.shape.max_tokens * plan.shape.top_k;
  return static_cast<int>(std::clamp<std::int64_t>(entries / (4 * kThreads), 1, std::min(most_blocks, kMostBlocks)));
}
void launch_keep_routing(const KeepParams& params, int most_blocks, bool pdl, cudaStream_t stream) {
  launch(&keep_routing_kernel, params, {.blocks = keep_routing_blocks(params.plan, most_blocks), .pdl = pdl}, stream);
}

void prepare_masked_sources() {
  prepare_kernel(&stand_in_kernel, kThreads, sizeof(MessageMemory));
  prepare_kernel(&pad_masked_kernel, kThreads, 0);
}
void launch_stand_in(const StandInParams& params, cudaStream_t stream) {
  launch(&stand_in_kernel, params, {.blocks = params.plan.shape.ranks, .shared_bytes = sizeof(MessageMemory)}, stream);
}
void launch_pad_masked(const PadMaskedParams& params, int most_blocks, cudaStream_t stream) {
  launch(&pad_masked_kernel, params, grid_of_tokens(params.plan, most_blocks), stream);
}

// How many teams fit with their buffers into `budget` bytes.
static int buffer_teams(std::size_t buffer_bytes, std::size_t budget) {
  int teams = kMostTeams;
  while (teams > 1 && static_cast<std::size_t>(teams) * HeapMap::whole_lines(buffer_bytes) > budget) teams /= 2;
  return teams;
}
// A multiprocessor's 227 KiB hold two blocks of dispatch, or one of combine. A message may have one destination more
// than top_k: this rank, for a shared expert.
int dispatch_buffer_teams(const Plan& plan) {
  return std::min(teams_with_threads(plan.shape.top_k + 1), buffer_teams(plan.map.message_bytes(), 66 * 1024));
}
int combine_buffer_teams(const Plan& plan) { return buffer_teams(plan.map.result_bytes(), 140 * 1024); }

std::size_t dispatch_shared_bytes(const Plan& plan, int teams) {
  const std::size_t buffers = static_cast<std::size_t>(teams) * HeapMap::whole_lines(plan.map.message_bytes());
  return kDispatchSharedBytes + HeapMap::whole_lines(std::max({buffers, routing_bytes(plan), row_start_bytes(plan)}));
}

std::size_t by_source_shared_bytes(const Plan& plan, int teams) {
  const std::size_t places = static_cast<std::size_t>(place_words(plan)) * sizeof(std::uint32_t);
  return std::max(dispatch_shared_bytes(plan, teams),
                  kDispatchSharedBytes + HeapMap::whole_lines(std::max(places, sizeof(TokenListMemory))));
}

std::size_t combine_shared_bytes(const Plan& plan) {
  const std::size_t buffers =
      static_cast<std::size_t>(combine_buffer_teams(plan)) * HeapMap::whole_lines(plan.map.result_bytes());
  return kCombineSharedBytes + buffers;
}
std::size_t combine_pipeline_bytes() { return kCombineSharedBytes + kPipelineBytes; }

}  // namespace ferry::cuda
