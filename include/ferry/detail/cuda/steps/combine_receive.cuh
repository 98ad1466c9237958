// The receiving side of a combine on a GPU: as cpu::receive_results, but one token at a time, so that a team can sum
// what has arrived between two sends. Every warp of a warpwise team works on its own.
#pragma once

#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/steps/weights/returned_weights.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"
#include "ferry/detail/cuda/team/team_ops.cuh"
#include "ferry/detail/cuda/team/warp_lookup.cuh"
#include "ferry/detail/protocol/await_results.h"
#include "ferry/detail/protocol/combine_reduce.h"

namespace ferry::cuda {

// The scratch of one warp. It holds the address of the table, because registers are scarce in the loop over a token's
// columns.
struct CombineScratch : TokenScratch {
  const RoutingEntry* own;  // this rank's table
};

// I11: leaves out results of ranks that the mask takes out since the handle's dispatch: they will not come. The others
// keep their slots.
__device__ inline void leave_out_masked(const WarpwiseTeam& g, const Plan& plan, TokenResults& results) {
  if (plan.masked == nullptr) return;
  const int lane = g.lane();
  int index = 0, rank = -1, k = 0;
  if (lane < results.count) {
    index = results.index[lane];
    rank = results.rank[lane];
    k = results.k[lane];
  }
  const bool comes = rank >= 0 && !plan.is_masked(rank);
  const unsigned coming = __ballot_sync(kAllLanes, comes);
  g.sync();
  if (comes) {
    const int to = __popc(coming & lanes_below(lane));
    results.index[to] = index;
    results.rank[to] = rank;
    results.k[to] = k;
  }
  if (lane == 0) results.count = __popc(coming);
  g.sync();
}

template <DeviceFabric F, CombineCode kCode, class Ops>
class ResultReceiver {
 public:
  // It has no token until it begins. `scratch`: this warp's.
  __device__ ResultReceiver(const CombineParams& p, F& fabric, Epoch epoch, CombineScratch& scratch)
      : p_(p),
        fabric_(fabric),
        g_(WarpwiseTeam::kWidth, 0),
        epoch_(epoch),
        token_(p.num_tokens),
        step_(1),
        scratch_(scratch) {}

  // For a block that receives: takes this team's share of the tokens. Blocks that only send run none of this.
  __device__ void begin(Epoch routing, std::byte* pipeline) {
    const FixedShare block = {static_cast<int>(blockIdx.x) - p_.roles.first_receiver,
                              static_cast<int>(gridDim.x) - p_.roles.first_receiver};
    g_ = WarpwiseTeam(p_.roles.receive_team_threads, block.index, pipeline);
    const FixedShare teams = teams_of(g_.size(), block);
    if (teams.index >= teams.count) return;  // of a block that is left over
    token_ = teams.index;
    step_ = teams.count;
    if (g_.lane() == 0) scratch_.own = p_.own != nullptr ? p_.own : table_of(p_.plan, fabric_, routing, p_.plan.rank);
    __syncwarp();
  }

  // Sums one token if all of its results have arrived. Waits for nothing.
  __device__ void receive_if_there() {
    look_up();
    const auto word = [&](int i) { return p_.plan.map.result_arrived(token_, scratch_.results.index[i]); };
    if (token_ < p_.num_tokens && fabric_.waits().are_there(g_, scratch_.results.count, word, epoch_)) receive(false);
  }
  // Sums all tokens that are left. False: a rank did not come.
  __device__ bool receive_rest() {
    bool warms_up = p_.roles.in_place && p_.out.epilogue == nullptr && !p_.out.unreduced;
    for (; token_ < p_.num_tokens; warms_up = false)
      if (!receive(warms_up)) return false;
    return true;
  }

 private:
  __device__ Step<F, WarpwiseTeam, WarpLookup, Ops> step() const {
    return {p_.plan, fabric_, g_, epoch_, epoch_};  // scratch_.own is of the routing
  }

  // Looks up the results of the current token, once.
  __device__ void look_up() {
    if (token_ >= p_.num_tokens || looked_up_ == token_) return;
    looked_up_ = token_;
    const RoutingEntry* own = scratch_.own;
    __builtin_assume(__isGlobal(own));
    const RoutingEntry* entries = own + static_cast<std::ptrdiff_t>(token_) * p_.plan.shape.top_k;
    step().lookup.results(g_, p_.plan, entries, p_.in.by_last_k, scratch_.results, scratch_.named);
    if constexpr (kCode != CombineCode::plain) leave_out_masked(g_, p_.plan, scratch_.results);
  }
  // A warm-up waits for nothing, sums whatever is in the slots and stores no sum. It fills the instruction cache and
  // the TLB while results are in flight.
  __device__ bool receive(bool warms_up) {
    look_up();
    if (!warms_up && !await_results(step(), token_, scratch_.results)) return false;
    if (!warms_up) let_next_kernel_launch();
    CombineOut out = p_.out;
    if (warms_up) {
      out.tokens = nullptr;
      out.token_bytes = 0;
    }
    std::uint32_t first_row = 0;  // of group 0, which has a shared expert's rows
    RowStarts starts;             // a local: as a member it would defeat scalar replacement
    starts.group = &first_row;
    reduce_token(step(), starts, p_.in, out, token_, scratch_);
    if constexpr (kCode == CombineCode::weighed)
      if (!warms_up) sum_returned_weights();
    if (!warms_up) token_ += step_;
    return true;
  }

  // I25: all results of the current token have come. One warp of the team sums.
  __device__ void sum_returned_weights() const {
    if (p_.out.weights != nullptr && g_.is_first_warp()) sum_returned(p_, scratch_.own, token_);
  }
  // A team that spans whole blocks triggers PDL with its last token: all its warps wait for the same results.
  __device__ void let_next_kernel_launch() const {
    if (token_ + step_ >= p_.num_tokens && g_.size() >= kThreads && !p_.roles.triggers_late)
      ptx::let_next_kernel_launch();
  }

  const CombineParams& p_;
  F& fabric_;
  WarpwiseTeam g_;
  Epoch epoch_;
  int token_;
  int step_;
  int looked_up_ = -1;
  CombineScratch& scratch_;
};

}  // namespace ferry::cuda
