// The protocol's phases as kernels of warps over peer memory, for every format: the proof that the shared text builds
// for a GPU. A kernel only names its phase. No backend launches them.
#include "cuda/peer_fabric.cuh"
#include "cuda/warp_group.cuh"
#include "protocol/combine.h"
#include "protocol/dispatch.h"
#include "shared/codec/formats.h"

namespace ferry::cuda {

struct RoundParams {
  Plan plan;
  PeerFabric fabric;
  DispatchArgs in;
  RowsOut rows;
  RowStarts starts;
  CombineArgs results;
  CombineOut out;
  Epoch epoch;
  std::byte* staging;  // [warps, message]
  SendCounts sent;
  ResultCounts returned;
};

__device__ Block my_block() {
  const int warps = static_cast<int>(blockDim.x) / WarpGroup::kWidth;
  return {static_cast<int>(blockIdx.x) * warps + static_cast<int>(threadIdx.x) / WarpGroup::kWidth,
          static_cast<int>(gridDim.x) * warps};
}

__global__ void publish(const __grid_constant__ RoundParams p) {
  PeerFabric fabric = p.fabric;
  if (await_buffers(p.plan, fabric, WarpGroup{}, p.epoch))
    publish_routing(p.plan, fabric, WarpGroup{}, p.in.num_tokens, p.epoch, p.sent.bytes);
}

template <TokenFormat Format>
__global__ void send(const __grid_constant__ RoundParams p) {
  PeerFabric fabric = p.fabric;
  SendCounts sent = p.sent;
  const Block block = my_block();
  send_tokens(p.plan, fabric, WarpGroup{}, Format{}, p.in, p.epoch, block,
              p.staging + static_cast<std::size_t>(block.index) * p.plan.map.message_bytes(), sent);
}

template <TokenFormat Format>
__global__ void lay_out(const __grid_constant__ RoundParams p) {
  PeerFabric fabric = p.fabric;
  if (!await_routing(p.plan, fabric, WarpGroup{}, p.epoch)) return;
  const Block block = my_block();
  if (block.index == 0) write_row_metadata(p.plan, WarpGroup{}, p.starts, p.rows);
  if (lay_out_shared_rows(p.plan, fabric, WarpGroup{}, Format{}, p.in.shared_begin, p.in.shared_end, p.epoch, block,
                          p.starts, p.rows))
    lay_out_rows(p.plan, fabric, WarpGroup{}, Format{}, p.epoch, block, p.starts, p.rows);
}

__global__ void combine(const __grid_constant__ RoundParams p) {
  PeerFabric fabric = p.fabric;
  const Block block = my_block();
  send_results(p.plan, fabric, WarpGroup{}, p.epoch, block, p.starts, p.results, p.staging, p.returned);
  receive_results(p.plan, fabric, WarpGroup{}, p.epoch, block, p.starts, p.results, p.out);
}

// I6: a kernel of its own, after every warp of combine is done.
__global__ void post(const __grid_constant__ RoundParams p) {
  PeerFabric fabric = p.fabric;
  if (load_relaxed(*fabric.failed) == 0) post_consumed(p.plan, fabric, WarpGroup{}, p.epoch);
}

// The launchers are instantiated, never the kernels: nvcc keeps a kernel template to its own file.
template <TokenFormat Format>
void launch_dispatch(const RoundParams& params, int blocks, int threads, cudaStream_t stream) {
  publish<<<1, WarpGroup::kWidth, 0, stream>>>(params);
  send<Format><<<blocks, threads, 0, stream>>>(params);
  lay_out<Format><<<blocks, threads, 0, stream>>>(params);
}
template void launch_dispatch<Bf16>(const RoundParams&, int, int, cudaStream_t);
template void launch_dispatch<Fp8Block128>(const RoundParams&, int, int, cudaStream_t);
template void launch_dispatch<Fp8Block128Ue8m0>(const RoundParams&, int, int, cudaStream_t);
template void launch_dispatch<Mxfp8>(const RoundParams&, int, int, cudaStream_t);
template void launch_dispatch<Mxfp6E2m3>(const RoundParams&, int, int, cudaStream_t);
template void launch_dispatch<Mxfp6E3m2>(const RoundParams&, int, int, cudaStream_t);
template void launch_dispatch<Mxfp4>(const RoundParams&, int, int, cudaStream_t);
template void launch_dispatch<Nvfp4>(const RoundParams&, int, int, cudaStream_t);

void launch_combine(const RoundParams& params, int blocks, int threads, cudaStream_t stream) {
  combine<<<blocks, threads, 0, stream>>>(params);
  post<<<1, WarpGroup::kWidth, 0, stream>>>(params);
}

}  // namespace ferry::cuda
