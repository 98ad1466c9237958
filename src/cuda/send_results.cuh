// Combine's send loop on a GPU: as protocol/combine.h's send_results, from the rows that dispatch kept. Every warp
// looks up the token for itself, one token ahead, so a team meets only at its buffer.
#pragma once

#include <cstdint>

#include "cuda/kernel_params.h"
#include "cuda/team_rows.cuh"
#include "cuda/token_scratch.cuh"
#include "protocol/combine.h"

namespace ferry::cuda {

// One token's rows here, an entry in each lane.
struct KeptToken {
  TokenAt at{0, 0};
  KeptRow row{kNoRow, 0.0f};
  int slot = 0;
  bool exists = false;
};

__device__ inline KeptToken load_kept(const Plan& plan, const KeptRows& kept, const TokenSequence& tokens, int place) {
  KeptToken token;
  if (place >= tokens.length) return token;
  token.at = tokens.at(place);
  if (token.at.token >= static_cast<int>(kept.tokens[token.at.source])) return token;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::size_t index =
      static_cast<std::size_t>(token.at.source) * static_cast<std::size_t>(plan.shape.max_tokens) +
      static_cast<std::size_t>(token.at.token);
  if (lane < plan.shape.top_k) token.row = kept.rows[index * static_cast<std::size_t>(plan.shape.top_k) + lane];
  token.slot = kept.slots[index];
  token.exists = true;
  return token;
}

// The token's rows are wanted soon.
__device__ inline void look_ahead(const TeamGroup& g, const CombineArgs& in, const KeptToken& token, int hidden) {
  const unsigned local = __ballot_sync(kAllLanes, token.row.row != kNoRow);
  for (unsigned rest = local; rest != 0; rest &= rest - 1) {
    const std::uint32_t row = __shfl_sync(kAllLanes, token.row.row, __ffs(static_cast<int>(rest)) - 1);
    look_ahead(g, in.row(row, 0.0f).data, static_cast<std::int64_t>(hidden) * (in.wide ? 4 : 2));
  }
}

// I7
template <Fabric F>
__device__ void deliver(const Plan& plan, F& fabric, const TeamGroup& g, Epoch epoch, TokenAt at, int index,
                        const std::byte* made_at, std::uint64_t* bytes_sent) {
  fabric.put_then_signal(g, at.source, plan.map.result(at.token, index), made_at, plan.map.result_bytes(),
                         plan.map.result_arrived(at.token, index), epoch);
  if (g.thread() == 0) bytes_sent[at.source] += plan.map.result_bytes();
}

// Relies on I8 and I18, as the generic one.
template <Fabric F>
__device__ void send_kept_results(const Plan& plan, F& fabric, const TeamGroup& g, Epoch epoch, Block block,
                                  const KeptRows& kept, const CombineArgs& in, std::uint64_t* bytes_sent) {
  RowStarts starts;
  starts.tokens = kept.tokens;
  const TokenSequence tokens(plan, starts, plan.rank + 1);  // own tokens last: the others travel meanwhile
  KeptToken next = load_kept(plan, kept, tokens, block.index);
  for (int place = block.index; place < tokens.length; place += block.count) {
    const KeptToken token = next;
    next = load_kept(plan, kept, tokens, place + block.count);
    look_ahead(g, in, next, plan.shape.hidden);
    const unsigned local = __ballot_sync(kAllLanes, token.row.row != kNoRow);
    if (local == 0) continue;
    RowSink sink;
    if (!plan.exact) {
      sink.data = fabric.next_staging(g);
      sum_lanes(g, in, token.row, local, plan.shape.hidden, sink);
      deliver(plan, fabric, g, epoch, token.at, token.slot, sink.data, bytes_sent);
      continue;
    }
    for (unsigned rest = local; rest != 0; rest &= rest - 1) {
      const int k = __ffs(static_cast<int>(rest)) - 1;
      std::byte* made_at = fabric.next_staging(g);
      copy_row(g, in.row(__shfl_sync(kAllLanes, token.row.row, k), 1.0f), plan.shape.hidden, made_at);
      deliver(plan, fabric, g, epoch, token.at, k, made_at, bytes_sent);
    }
  }
  fabric.finish_puts(g);
}

}  // namespace ferry::cuda
