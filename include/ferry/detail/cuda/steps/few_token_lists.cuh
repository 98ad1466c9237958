// Token lists of a dispatch of few tokens, by the block that counts all of them. It has the bits of every token in
// shared memory, so the lists leave with the counts. Of more tokens lists are made from the table (token_lists.cuh).
#pragma once

#include <cstdint>

#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/steps/routing/route_share.cuh"
#include "ferry/detail/cuda/steps/token_lists.cuh"
#include "ferry/detail/cuda/team/team_group.cuh"
#include "ferry/detail/layout/token_list.h"

namespace ferry::cuda {

// Whether lists are made this way: all ranks are direct, and one chunk of bits has all tokens.
template <RankReach Reach>
__device__ bool lists_with_counts(const RoutingArgs& routing) {
  return !Reach::kHasRemoteRanks && routing.counts_all;
}

// A warp: which of 32 tokens name an expert of `theirs`. `bits`: of these tokens, one word for each expert.
__device__ inline std::uint32_t tokens_that_come(const BlockWord<std::uint32_t>* bits, const ExpertRange& theirs) {
  std::uint32_t come = 0;
#pragma unroll 1
  for (int expert = theirs.first + static_cast<int>(threadIdx.x % 32); expert < theirs.first + theirs.count;
       expert += 32)
    come |= bits[expert].raw;
  return __reduce_or_sync(kAllLanes, come);
}

// I23: all threads of `g`; a warp makes the list of one rank after another. The first word comes last.
template <RankReach Reach>
__device__ void list_few_tokens(const SyncedTeam& g, const ListedTokens& listed, const RoutingMemory& memory,
                                Epoch routing) {
  const Plan& plan = listed.plan;
  const int lane = g.thread() % 32;
  const int words = static_cast<int>(token_list_words(listed.num_tokens)) - 1;
#pragma unroll 1
  for (int peer = g.thread() / 32; peer < plan.shape.ranks; peer += g.size() / 32) {
    if (plan.is_masked(peer)) continue;
    auto* list =
        reinterpret_cast<std::uint64_t*>(Reach(listed.links).heap_of(peer) + plan.map.token_list(routing, plan.rank));
    std::uint32_t before = 0;
#pragma unroll 1
    for (int first = 0; first < words; first += 32) {
      std::uint32_t mine = 0;
#pragma unroll 1
      for (int word = first; word < min(words, first + 32); ++word) {
        const std::uint32_t come = tokens_that_come(memory.bits + word * plan.shape.experts, plan.experts_of(peer));
        if (lane == word - first) mine = come;
      }
      const auto count = static_cast<std::uint32_t>(__popc(mine));
      const std::uint32_t earlier = before + sum_before(count);
      if (first + lane < words) list[1 + first + lane] = token_list_word(mine, earlier);
      before = __shfl_sync(kAllLanes, earlier + count, 31);
    }
    __syncwarp();
    if (lane != 0) continue;
    store_release(*reinterpret_cast<SignalWord*>(list), token_list_word(before, static_cast<std::uint32_t>(routing)));
    if (peer != plan.rank) count_list_bytes(listed, peer);
  }
}

}  // namespace ferry::cuda
