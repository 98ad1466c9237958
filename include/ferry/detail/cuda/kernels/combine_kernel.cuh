// The combine kernel: blocks send results, or sum what has arrived, or do both. It knows nothing of the token format;
// `Ops` know how results travel: TeamOps and OneTextOps as bf16, EncodedOps in another format. F16Ops are for rows,
// bias or sums of f16.
#pragma once

#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/kernels/calls/call_fault.cuh"
#include "ferry/detail/cuda/kernels/step_clock.cuh"
#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/steps/combine_receive.cuh"
#include "ferry/detail/cuda/steps/combine_send.cuh"
#include "ferry/detail/cuda/steps/routing/peer_counts.cuh"
#include "ferry/detail/cuda/team/encoded_ops.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"

namespace ferry::cuda {

// Shared memory of a block. The buffers of its teams follow.
struct CombineMemory {
  CombineScratch scratch[kThreads / 32];  // of each warp
  PeerCounts bytes_sent;
  int queue_slots[kMostTeams][2];
  RoundStart round;
  std::uint32_t rows_laid_out;         // of the first block
  std::uint32_t words[kThreads / 32];  // of each warp, for its ops
};
inline constexpr std::size_t kCombineSharedBytes = HeapMap::whole_lines(sizeof(CombineMemory));
static_assert(kCombineSharedBytes + kPipelineBytes <= 227 * 1024, "the pipeline does not fit on a Hopper GPU");

__device__ inline FixedShare sending_teams(const CombineParams& p) {
  return teams_of(p.roles.send_team_threads, {static_cast<int>(blockIdx.x), p.roles.senders});
}

__device__ inline bool block_sends(const CombineParams& p) {
  return p.sends && static_cast<int>(blockIdx.x) < p.roles.senders;
}
__device__ inline bool block_receives(const CombineParams& p) {
  return p.receives && static_cast<int>(blockIdx.x) >= p.roles.first_receiver;
}

// `teams`: the sending teams. `pipeline`: the block's memory for rows in flight; null where there is none.
template <class Ops, DeviceFabric F, CombineCode kCode>
__device__ void combine_share(const CombineParams& p, F& fabric, FixedShare teams, const ArrivedStart<kCode>& start,
                              CombineMemory& memory, std::byte* pipeline) {
  const Epoch epoch = memory.round.epoch;
  const bool receives = block_receives(p);
  CombineScratch& scratch = memory.scratch[threadIdx.x / 32];
  ResultReceiver<F, kCode, Ops> receiver(p, fabric, epoch, scratch);
  if (receives) receiver.begin(memory.round.routing, pipeline);
  if (block_sends(p)) {
    const SyncedTeam team(p.roles.send_team_threads, pipeline);
    begin_step(p.step_times, KernelStep::send, SyncedTeam::of_block());
    ResultSender<F, kCode, Ops> sender(p, fabric, team, epoch, Ops::of_block(memory.words), scratch.rows,
                                       {memory.bytes_sent, team.team(), p.stats.bytes});
    sender.send(teams, start, memory.queue_slots[team.team()], [&] { receiver.receive_if_there(); });
    if (!p.receives) fabric.complete_puts(team);  // I8: combine_async, whose round may be given up
    end_step(p.step_times, KernelStep::send, team);
  }
  if (!receives) return;
  begin_step(p.step_times, KernelStep::sum, SyncedTeam::of_block());
  receiver.receive_rest();
}

// I18: rows beyond those that the caller gave are not read (CombineArgs::row). The next call throws.
__device__ inline void report_few_rows(const CombineParams& p, std::uint32_t laid_out) {
  if (laid_out <= p.in.num_rows) return;
  p.links.record->rows_given = p.in.num_rows;
  p.links.record->rows_laid_out = laid_out;
  store_release(p.links.record->has_few_rows, 1u);
}

// The same for the weights that go home.
__device__ inline void report_few_row_weights(const CombineParams& p, std::uint32_t laid_out) {
  if (p.in.row_weights == nullptr || laid_out <= p.in.num_row_weights) return;
  p.links.record->rows_given = p.in.num_row_weights;
  p.links.record->rows_laid_out = laid_out;
  store_release(p.links.record->has_few_rows, kFewRowWeights);
}

template <CombineCode kCode>
__device__ RoundStart read_combine(const SyncedTeam& all, const CombineParams& p) {
  const DeviceState& state = *p.links.state;
  if (kCode == CombineCode::plain || (kCode == CombineCode::weighed && !p.is_extra))
    return read_combine<false>(all, state, p.dispatch_call);
  return read_combine<true>(all, state, p.dispatch_call);
}

// Ops::kIsPipelined: rows come through shared memory (CombineRoles::pipelined), and teams need no buffers.
template <DeviceFabric F, CombineCode kCode, class Ops>
__global__ void __launch_bounds__(kThreads, 1) combine_kernel(const __grid_constant__ CombineParams p) {
  extern __shared__ __align__(128) std::byte memory[];
  const SyncedTeam all = SyncedTeam::of_block();
  auto& shared = *reinterpret_cast<CombineMemory*>(memory);
  clear_counts<typename F::Reach>(all, p.plan, shared.bytes_sent);
  ptx::await_earlier_kernels();
  DeviceState& state = *p.links.state;
  const bool concludes = blockIdx.x == 0 && all.thread() == 0;
  const RoundStart seen = read_combine<kCode>(all, p);
  const std::uint32_t laid_out = concludes && p.sends ? p.arrived.starts.group[p.plan.groups()] : 0;
  const FixedShare teams = sending_teams(p);
  const ArrivedStart<kCode> start(p, teams.index);
  if (concludes) shared.rows_laid_out = laid_out;
  const RoundStart round = broadcast_round(all, seen, shared.round);
  if (round.broken) return tell_of_other_dispatch<F>(p.links, Operation::combine, p.dispatch_call);
  if constexpr (kCode == CombineCode::weighed)
    if (p.sends && p.plan.map.has_late_weights() && !exchange_late_weights<F>(p, round.epoch, block_sends(p))) return;
  F fabric(p.links, p.plan, p.plan.map.result_bytes());
  if (p.roles.in_place) fabric.make_in_place();
  std::byte* const rest = memory + kCombineSharedBytes;
  // Results for direct ranks are made in their slots where that is the role, so no team has a buffer then.
  if (F::kHasRemoteRanks || !p.roles.in_place) fabric.use_buffers(rest, SyncedTeam(p.roles.send_team_threads));
  combine_share<Ops>(p, fabric, teams, start, shared, Ops::kIsPipelined ? rest : nullptr);
  if (!p.roles.triggers_late) ptx::let_next_kernel_launch();
  all.sync();
  if (block_receives(p)) end_step(p.step_times, KernelStep::sum, all);
  if (block_sends(p)) add_counts<typename F::Reach>(all, p.plan, shared.bytes_sent, p.stats.bytes);
  if (!concludes) return;
  if constexpr (kCode == CombineCode::weighed)
    if (p.sends) report_few_row_weights(p, shared.rows_laid_out);
  if (p.sends) report_few_rows(p, shared.rows_laid_out);
  if (p.receives) fetch_add_relaxed(state.combines, std::uint64_t{1});
}

}  // namespace ferry::cuda
