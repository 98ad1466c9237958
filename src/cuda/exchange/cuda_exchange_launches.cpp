// The kernels that CudaExchange launches: loaded when it is made, then filled in and launched for each call.
#include <algorithm>

#include "cuda/exchange/cuda_exchange.h"
#include "cuda/policy/combine_policy.h"
#include "cuda/policy/dispatch_policy.h"
#include "cuda/policy/scales_policy.h"
#include "cuda/world/refuse.h"
#include "exchange/plan.h"
#include "ferry/detail/cuda/steps/scale_tiles.h"

namespace ferry::cuda {

void CudaExchange::prepare_kernels() {
  int most_shared = 0;
  cuda_check(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, place_.device),
             "cudaDeviceGetAttribute");
  cuda_check(cudaDeviceGetAttribute(&most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, place_.device),
             "cudaDeviceGetAttribute");
  routing_.record = record_;
  routing_.state = links_.state;
  routing_.words = ranking_words(plan_);
  const std::size_t for_dispatch = dispatch_shared_bytes(plan_, dispatch_buffer_teams(plan_));
  const std::size_t needed = std::max(for_dispatch, combine_shared_bytes(plan_));
  if (needed > static_cast<std::size_t>(most_shared))
    refuse(ErrorKind::unsupported, rank_,
           "{} needs {} bytes of shared memory in a block; device {} has {}. Make hidden or experts smaller",
           to_string(shape_), needed, place_.device, most_shared);
  has_pipeline_ = combine_launcher_.has_pipeline && combine_ring_bytes() <= static_cast<std::size_t>(most_shared);
  can_pair_blocks_ = dispatch_launcher_->prepare_halves(kThreads, for_dispatch);
  dispatch_blocks_per_multiprocessor_ = dispatch_launcher_->prepare(kThreads, for_dispatch);
  combine_blocks_per_multiprocessor_ =
      combine_launcher_.prepare(kThreads, combine_shared_bytes(plan_), has_pipeline_ ? combine_ring_bytes() : 0);
  scales_blocks_per_multiprocessor_ = prepare_scales(plan_);
  for (const int blocks : {dispatch_blocks_per_multiprocessor_, combine_blocks_per_multiprocessor_})
    if (most_blocks(blocks) < kLeastBlocks)
      refuse(ErrorKind::invalid_argument, rank_,
             "concurrent is {}, and {} of the ranks share device {}: a kernel would have {} blocks, and needs {} or "
             "more",
             options_.concurrent, place_.ranks, place_.device, most_blocks(blocks), kLeastBlocks);
}

int CudaExchange::most_blocks(int blocks_per_multiprocessor) const {
  return max_resident_blocks(multiprocessors_, blocks_per_multiprocessor, options_.concurrent * place_.ranks);
}

DeviceLimits CudaExchange::limits(int blocks_per_multiprocessor, const CallOptions& call) const {
  DeviceLimits limits{multiprocessors_, blocks_per_multiprocessor, most_blocks(blocks_per_multiprocessor),
                      options_.concurrent * place_.ranks == 1};
  if (call.max_blocks > 0) limits.max_blocks = std::min(limits.max_blocks, call.max_blocks);
  return limits;
}

// What both kernels get. A captured graph keeps what was so when it was captured.
template <class Params, class In, class Out>
Params CudaExchange::params_of(const Round& round, const In* in, const Out* out) const {
  Params params;
  params.plan = plan_;
  params.links = links_;
  params.plan.masked = params.links.masked = round.masked;
  params.sends = in != nullptr;
  params.receives = out != nullptr;
  if (in != nullptr) params.in = *in;
  if (out != nullptr) params.out = *out;
  params.handle = handle_;
  params.stats = stats_;
  return params;
}

void CudaExchange::run_dispatch(const Round& round, const DispatchArgs* in, const RowsOut* out,
                                const CallOptions& call) {
  auto params = params_of<DispatchParams>(round, in, out);
  params.in.shared_begin = round.shared.begin;
  params.in.shared_end = round.shared.end;
  params.routing = routing_;
  params.routing.counts_all = one_block_counts_all(round.num_tokens, plan_.shape.top_k, routing_.words);
  params.num_experts = shape_.experts;
  const int parts = links_.table_parts.count(round.num_tokens);
  const int scale_words =
      scales_blocks_per_multiprocessor_ == 0
          ? 0
          : scattered_scale_words(layout_.scale_layout, static_cast<int>(size_of(layout_.scale_dtype)),
                                  layout_.scales_per_row, layout_.payload_row_bytes);
  const Problem problem{.ranks = plan_.shape.ranks,
                        .num_tokens = round.num_tokens,
                        .arrivals = likely_arrivals(round),
                        .table_parts = parts,
                        .counts_all = params.routing.counts_all,
                        .buffer_teams = dispatch_buffer_teams(plan_),
                        .sends = params.sends,
                        .receives = params.receives,
                        .hidden = plan_.shape.hidden,
                        .message_bytes = static_cast<int>(plan_.map.message_bytes()),
                        .groups = plan_.groups(),
                        .top_k = plan_.shape.top_k,
                        .local_fraction = local_part(),
                        .scale_words = scale_words,
                        .has_remote_ranks = plan_.map.has_remote_ranks(),
                        .can_pair_blocks = can_pair_blocks_};
  const DeviceLimits most = limits(dispatch_blocks_per_multiprocessor_, call);
  const DispatchPolicy policy = dispatch_policy(most, problem);
  params.links.backs_off = backs_off(problem);
  params.roles = policy.roles;
  params.routing.parts = parts;
  params.routing.parts_per_routing_block = parts_per_routing_block(problem, std::max(1, policy.roles.table_blocks()));
  const bool scales_last = stores_scales_last(most, problem, policy.thread_blocks());
  if (scales_last) params.out.scales.layout = ScaleLayout::none;
  const auto stream = static_cast<cudaStream_t>(call.stream);
  const int teams = params.sends ? kThreads / policy.roles.send_team_threads : 0;
  params.block_bytes = static_cast<std::uint32_t>(dispatch_shared_bytes(plan_, teams));
  dispatch_launcher_->launch(params, policy, stream);
  if (scales_last) store_scales(*out, call);
}

// I20
void CudaExchange::store_scales(const RowsOut& out, const CallOptions& call) const {
  ScalesParams params;
  params.plan = plan_;
  params.state = links_.state;
  params.heap = links_.own;
  params.scales = out.scales;
  params.by_parts = Divider(scale_parts(out.scales));
  params.src_info = out.src_info;
  params.payload_bytes = out.row_bytes;
  params.starts = handle_.starts.of_source;
  const DeviceLimits most = limits(scales_blocks_per_multiprocessor_, call);
  launch_scales(params, most.blocks(), most.exclusive, static_cast<cudaStream_t>(call.stream));
}

void CudaExchange::run_combine(const CombineArgs* in, const CombineOut* out, const CallOptions& call) {
  auto params = params_of<CombineParams>(open_, in, out);
  if (in == nullptr) params.in = returning_;
  params.num_tokens = open_.num_tokens;
  const Problem problem{.ranks = plan_.shape.ranks,
                        .num_tokens = open_.num_tokens,
                        .arrivals = likely_arrivals(open_),
                        .buffer_teams = combine_buffer_teams(plan_),
                        .sends = params.sends,
                        .receives = params.receives,
                        .hidden = plan_.shape.hidden,
                        .top_k = plan_.shape.top_k,
                        .local_fraction = local_part(),
                        .has_remote_ranks = plan_.map.has_remote_ranks(),
                        .exact = plan_.exact,
                        .has_pipeline = has_pipeline_ && !params.in.is_f32};
  const CombinePolicy policy = combine_policy(limits(combine_blocks_per_multiprocessor_, call), problem);
  params.links.backs_off = backs_off(problem);
  params.roles = policy.roles;
  const std::size_t shared_bytes = policy.roles.pipelined ? combine_ring_bytes() : combine_shared_bytes(plan_);
  combine_launcher_.launch(params, policy, shared_bytes, static_cast<cudaStream_t>(call.stream));
}

}  // namespace ferry::cuda
