// The send loop of a combine on a GPU: as cpu::send_results, with ArrivedRows. Every warp loads the
// rows of a token on its own, one token ahead, so a team synchronises only for its buffer.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/steps/routing/peer_counts.cuh"
#include "ferry/detail/cuda/steps/weights/late_weights.cuh"
#include "ferry/detail/cuda/steps/weights/returned_weights.cuh"
#include "ferry/detail/cuda/team/row_copies.cuh"
#include "ferry/detail/cuda/team/team_ops.cuh"
#include "ferry/detail/cuda/team/warp_lookup.cuh"
#include "ferry/detail/cuda/team/work_queue.cuh"
#include "ferry/detail/protocol/combine_reduce.h"

namespace ferry::cuda {

// The rows of one token at this rank, an entry in each lane.
struct ArrivedToken {
  TokenAt at{0, 0};
  HandleRow row{kNoRow, 0.0f};
  int slot = 0;
};

// Kernels that may have a handle clamp the slot, which may come from a caller (I18). Without a handle skip the clamp:
// it would wait for the load.
template <CombineCode kCode>
__device__ ArrivedToken load_arrived(const Plan& plan, const ArrivedRows& arrived, const TokenSequence& tokens,
                                     int position) {
  ArrivedToken token;
  if (position >= plan.shape.ranks * plan.shape.max_tokens) return token;
  token.at = tokens.at(position);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::size_t index =
      static_cast<std::size_t>(token.at.source) * static_cast<std::size_t>(plan.shape.max_tokens) +
      static_cast<std::size_t>(token.at.token);
  if (lane < plan.shape.top_k) token.row = arrived.rows[index * static_cast<std::size_t>(plan.shape.top_k) + lane];
  token.slot = arrived.slots[index];
  if constexpr (kCode != CombineCode::plain)
    token.slot = min(token.slot, static_cast<int>(plan.map.results_per_token()) - 1);
  // Checked last, so that no load depends on another. The rows of a token that did not come are of an older round.
  if (token.at.token >= static_cast<int>(arrived.starts.tokens[token.at.source])) token.row.row = kNoRow;
  if constexpr (kCode != CombineCode::plain)
    if (plan.is_masked(token.at.source)) token.row.row = kNoRow;  // I11: since the handle's dispatch
  return token;
}

// What a sender loads first. It is not double-buffered, so the epoch need not be known.
template <CombineCode kCode>
struct ArrivedStart {
  int most_tokens;  // the most tokens of a source
  ArrivedToken first;
  __device__ ArrivedStart(const CombineParams& p, int position)
      : most_tokens(static_cast<int>(p.arrived.starts.tokens[p.plan.shape.ranks])),
        first(load_arrived<kCode>(p.plan, p.arrived, {p.plan, p.plan.shape.max_tokens, p.plan.rank + 1}, position)) {
    if constexpr (kCode != CombineCode::plain) most_tokens = max(0, min(most_tokens, p.plan.shape.max_tokens));
  }
};

// Prefetches the rows of a token.
__device__ inline void prefetch_rows_of(const SyncedTeam& g, const CombineArgs& in, const ArrivedToken& token,
                                        int hidden) {
  const unsigned local = __ballot_sync(kAllLanes, token.row.row != kNoRow);
  for (unsigned rest = local; rest != 0; rest &= rest - 1) {
    const std::uint32_t row = __shfl_sync(kAllLanes, token.row.row, __ffs(static_cast<int>(rest)) - 1);
    prefetch_row(g, in.row(row, 0.0f).data, static_cast<std::int64_t>(hidden) * (in.dtype == DType::f32 ? 4 : 2));
  }
}

// The sends of one team.
template <DeviceFabric F, CombineCode kCode, class Ops>
class ResultSender {
  static constexpr bool kIsWeighed = kCode == CombineCode::weighed;

 public:
  // `rows` is of this warp, `bytes_sent` of the team.
  __device__ ResultSender(const CombineParams& p, F& fabric, const SyncedTeam& g, Epoch epoch, const Ops& ops,
                          SumRow* rows, const PeerCounter<typename F::Reach>& bytes_sent)
      : p_(p),
        fabric_(fabric),
        g_(g),
        epoch_(epoch),
        ops_(ops),
        rows_(rows),
        bytes_sent_(bytes_sent),
        copies_(g.pipeline()),
        late_weights_(p) {}

  // Relies on I8 and I18, as cpu::send_results. `start` is of the first position of `block`. Calls `between`
  // after each position but this team's last: there the signals go first, because other ranks wait for them.
  template <class Between>
  __device__ void send(FixedShare block, const ArrivedStart<kCode>& start, int* slots, const Between& between) {
    const TokenSequence tokens(p_.plan, start.most_tokens, p_.plan.rank + 1);
    WorkQueue share(g_, block, 2, tokens.length, p_.links.state->result_counter, slots);
    ArrivedToken next = start.first;
    take_late_weight(next);
    int following = share.next(g_, share.index);
    for (int position = share.index; position < tokens.length;) {
      const ArrivedToken token = next;
      next = load_arrived<kCode>(p_.plan, p_.arrived, tokens, following);
      take_late_weight(next);
      if (p_.roles.prefetches) prefetch_rows_of(g_, p_.in, next, p_.plan.shape.hidden);
      if (p_.plan.exact)
        send_each_row(token);
      else
        send_partial(token);
      if constexpr (!Ops::kCopiesRows)  // a sum would need their stages
        if (following < tokens.length) between();
      position = following;
      following = share.next(g_, position);
    }
    copies_.finish(epoch_);
    fabric_.finish_puts(g_);
  }

 private:
  // I24
  __device__ void take_late_weight(ArrivedToken& token) const {
    if constexpr (kIsWeighed)
      token.row.weight = late_weights_.weight(token.at, static_cast<int>(threadIdx.x % 32), token.row.weight);
  }
  __device__ void send_partial(const ArrivedToken& token) {
    const unsigned local = list_rows(token);
    if (local == 0) return;
    if constexpr (kIsWeighed) return_weights(token, 1);
    if constexpr (Ops::kCopiesRows) {
      if (__popc(local) == 1 && rows_[0].weight == 1.0f) return copy_row(token.at, token.slot, rows_[0]);
      copies_.finish(epoch_);  // the sum needs their stages
    }
    std::byte* made_at = target(token.at, token.slot);
    ops_.write_sum(g_, rows_, __popc(local), p_.plan.shape.hidden, made_at);
    deliver(token.at, token.slot, made_at);
  }
  __device__ void send_each_row(const ArrivedToken& token) {
    const unsigned local = __ballot_sync(kAllLanes, token.row.row != kNoRow);
    if constexpr (kIsWeighed)
      if (local != 0) return_weights(token, __popc(local));
    for (unsigned rest = local; rest != 0; rest &= rest - 1) {
      const int k = __ffs(static_cast<int>(rest)) - 1;
      const SumRow row = p_.in.row(__shfl_sync(kAllLanes, token.row.row, k), 1.0f);
      if constexpr (Ops::kCopiesRows) {
        copy_row(token.at, k, row);
        continue;
      }
      std::byte* made_at = target(token.at, k);
      ops_.write_row(g_, row, p_.plan.shape.hidden, made_at);
      deliver(token.at, k, made_at);
    }
  }
  // I25: the first warp stores them. A barrier of the team, or of the warp that is the team, and the results' signals
  // follow. `results`: of the token.
  __device__ void return_weights(const ArrivedToken& token, int results) {
    if (!p_.plan.map.returns_weights()) return;
    if (g_.thread() < SyncedTeam::kWidth) {
      const WeightReturner<typename F::Reach> returner(p_);
      if (p_.plan.exact)
        returner.return_each(token.at, token.row.row);
      else
        returner.return_together(token.at, token.slot, token.row.row);
      if (g_.thread() == 0)
        bytes_sent_.add(token.at.source, static_cast<std::uint64_t>(results) * p_.plan.map.returned_bytes());
    }
    fabric_.fence_puts(g_, token.at.source);
  }
  // Collects the rows, k ascending; every warp on its own. Returns the lanes that have a row.
  __device__ unsigned list_rows(const ArrivedToken& token) {
    const unsigned local = __ballot_sync(kAllLanes, token.row.row != kNoRow);
    __syncwarp();
    if (token.row.row != kNoRow)
      rows_[__popc(local & lanes_below(lane_of(g_)))] = p_.in.row(token.row.row, p_.in.weight_of(token.row.weight));
    __syncwarp();
    return local;
  }
  // I7: sends a row as the result. A sum of one row with weight 1 differs from the row by the sign of a zero and the
  // bits of a NaN, which the sum at home does not keep.
  __device__ void copy_row(TokenAt at, int index, const SumRow& row) {
    const HeapMap& map = p_.plan.map;
    std::byte* const word = fabric_.peer_pointer(at.source, map.result_arrived(at.token, index));
    copies_.copy(row.data, fabric_.peer_pointer(at.source, map.result(at.token, index)),
                 static_cast<std::size_t>(p_.plan.shape.hidden) * 2, reinterpret_cast<SignalWord*>(word), epoch_);
    if (g_.thread() == 0) bytes_sent_.add(at.source, map.result_bytes());
  }
  // Where a result is made: in its slot, or in a buffer from which a bulk copy takes it.
  __device__ std::byte* target(TokenAt at, int index) {
    std::byte* const slot = slot_in_place(at.source, p_.plan.map.result(at.token, index));
    return slot != nullptr ? slot : fabric_.staging(g_);
  }
  // The slot at `offset` of the source, if results are made there; otherwise null.
  __device__ std::byte* slot_in_place(int source, std::size_t offset) const {
    return p_.roles.in_place ? fabric_.peer_pointer(source, offset) : nullptr;
  }
  // I7
  __device__ void deliver(TokenAt at, int index, const std::byte* made_at) {
    const HeapMap& map = p_.plan.map;
    const std::size_t slot = map.result(at.token, index);
    const std::size_t word = map.result_arrived(at.token, index);
    if (made_at == slot_in_place(at.source, slot))
      fabric_.signal_after_puts(g_, at.source, word, epoch_);
    else
      fabric_.put_then_signal(g_, at.source, {slot, made_at, map.result_bytes(), word, epoch_});
    if (g_.thread() == 0) bytes_sent_.add(at.source, map.result_bytes());
  }

  const CombineParams& p_;
  F& fabric_;
  const SyncedTeam& g_;
  Epoch epoch_;
  Ops ops_;
  SumRow* rows_;
  PeerCounter<typename F::Reach> bytes_sent_;
  std::conditional_t<Ops::kCopiesRows, ResultCopies, NoRowCopies> copies_;
  struct NoWeights {
    __device__ explicit NoWeights(const CombineParams&) {}
  };
  [[no_unique_address]] std::conditional_t<kIsWeighed, LateWeights, NoWeights> late_weights_;
};

}  // namespace ferry::cuda
