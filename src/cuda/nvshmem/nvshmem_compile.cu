// Instantiates the phases of a round over NvshmemFabric, so that a change of theirs which it does not follow fails
// here.
#include "cuda/nvshmem/nvshmem_fabric.cuh"
#include "cuda/team_rows.cuh"
#include "cuda/token_scratch.cuh"
#include "protocol/combine.h"
#include "protocol/dispatch.h"
#include "shared/codec/formats.h"

namespace ferry::cuda {

struct PhasesParams {
  PeerLinks links;
  Plan plan;
  DispatchArgs in;
  RowsOut rows;
  RowStarts starts;
  CombineArgs results;
  std::uint64_t* counts;
};

__global__ void send_phases(const __grid_constant__ PhasesParams p) {
  extern __shared__ __align__(128) std::byte memory[];
  const TeamGroup g;
  const Block block{static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)};
  auto& scratch = *reinterpret_cast<TokenScratch*>(memory);
  NvshmemFabric fabric(p.links, p.plan, p.plan.map.message_bytes());
  fabric.use_rings(memory + sizeof(TokenScratch) / 128 * 128 + 128, g);
  if (!await_buffers(p.plan, fabric, g, 2)) return;
  publish_routing(p.plan, fabric, g, p.in.num_tokens, 2, p.counts);
  SendCounts counted{0, 0, p.counts, p.counts};
  send_tokens(p.plan, fabric, g, Fp8Block128{}, p.in, 2, block, nullptr, scratch, counted);
  send_results(p.plan, fabric, g, 2, block, p.starts, p.results, nullptr, scratch, ResultCounts{p.counts});
  fabric.complete_puts(g);
}

__global__ void receive_phases(const __grid_constant__ PhasesParams p) {
  extern __shared__ __align__(128) std::byte memory[];
  const TeamGroup g;
  const Block block{static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)};
  auto& scratch = *reinterpret_cast<TokenScratch*>(memory);
  NvshmemFabric fabric(p.links, p.plan, p.plan.map.message_bytes());
  if (!await_routing(p.plan, fabric, g, 2)) return;
  lay_out_rows(p.plan, fabric, g, Fp8Block128{}, 2, block, p.starts, p.rows, scratch);
  post_consumed(p.plan, fabric, g, 2);
}

}  // namespace ferry::cuda
