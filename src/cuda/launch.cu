// The table of dispatch launchers, the combine kernel, and how much shared memory a block needs.
#include "cuda/launch.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "cuda/launch.cuh"
#include "cuda/peer_fabric.cuh"

namespace ferry::cuda {

void cuda_check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // an error that is thrown is not found again by the next check
  throw Error(ErrorKind::system,
              std::string(call) + ": " + cudaGetErrorName(status) + ": " + cudaGetErrorString(status));
}

static const DispatchLauncher* find_peer_dispatch(const char* format) {
  static const std::array<DispatchLauncher, 8> kLaunchers = {
      bf16_launcher(),  fp8_block128_launcher(), fp8_block128_ue8m0_launcher(),
      mxfp8_launcher(), mxfp6_e2m3_launcher(),   mxfp6_e3m2_launcher(),
      mxfp4_launcher(), nvfp4_launcher()};
  for (const DispatchLauncher& launcher : kLaunchers)
    if (std::strcmp(launcher.format, format) == 0) return &launcher;
  return nullptr;
}

Launchers peer_launchers() { return {&find_peer_dispatch, combine_launcher_of_two<PeerFabric>()}; }

int ranking_part_tokens(const Shape& shape) {
  constexpr int kEntries = 2048;  // a few turns of every warp
  constexpr int kParts = static_cast<int>(HeapMap::kMostTableParts);
  const int at_once = 32 / shape.top_k;
  const int tokens = std::max(kEntries / shape.top_k, (shape.max_tokens + kParts - 1) / kParts);
  return (tokens + at_once - 1) / at_once * at_once;
}

int ranking_warps(const Plan& plan, int threads) {
  constexpr std::size_t kCounterBytes = 32 * 1024;
  const std::size_t per_warp = static_cast<std::size_t>(plan.shape.experts) * sizeof(std::uint32_t);
  return std::clamp(static_cast<int>(kCounterBytes / per_warp), 1, threads / 32);
}

// RankingMemory without its cache.
static std::size_t ranking_counter_bytes(const Plan& plan, int warps) {
  return static_cast<std::size_t>(warps + 2) * static_cast<std::size_t>(plan.shape.experts) * sizeof(std::uint32_t);
}

// As many teams as fit with their buffers in `budget` bytes.
static int ring_teams(std::size_t buffer_bytes, std::size_t budget) {
  int teams = kMostTeams;
  while (teams > 1 && static_cast<std::size_t>(teams * PeerFabric::kRing) * buffer_bytes > budget) teams /= 2;
  return teams;
}
// Two blocks of dispatch, and one of combine, share a multiprocessor's 227 KiB.
int dispatch_ring_teams(const Plan& plan) { return ring_teams(plan.map.message_bytes(), 65 * 1024); }
int combine_ring_teams(const Plan& plan) { return ring_teams(plan.map.result_bytes(), 140 * 1024); }

std::size_t dispatch_shared_bytes(const Plan& plan, int warps) {
  const std::size_t ring =
      static_cast<std::size_t>(dispatch_ring_teams(plan) * PeerFabric::kRing) * plan.map.message_bytes();
  const std::size_t counters = ranking_counter_bytes(plan, warps);
  const std::size_t starts =
      (static_cast<std::size_t>(plan.shape.ranks) * static_cast<std::size_t>(plan.local_experts()) +
       3 * static_cast<std::size_t>(plan.groups()) + 1 + static_cast<std::size_t>(plan.shape.ranks) + 1) *
      sizeof(std::uint32_t);
  return kDispatchSharedBytes + std::max({ring, counters, starts});
}

int ranking_cache(const Plan& plan, int warps) {
  if (plan.shape.experts >= 65535) return 0;  // an expert is kept in 16 bits
  return static_cast<int>(
      (dispatch_shared_bytes(plan, warps) - kDispatchSharedBytes - ranking_counter_bytes(plan, warps)) /
      sizeof(std::uint16_t));
}

std::size_t combine_shared_bytes(const Plan& plan) {
  return kCombineSharedBytes +
         static_cast<std::size_t>(combine_ring_teams(plan) * PeerFabric::kRing) * plan.map.result_bytes();
}

}  // namespace ferry::cuda
