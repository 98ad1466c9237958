#include "cuda/exchange/plan/kernel_plan.h"

#include "base/debug_log.h"
#include "cuda/device/refuse.h"
#include "cuda/policy/combine_policy.h"
#include "cuda/policy/dispatch_policy.h"
#include "cuda/policy/scales_policy.h"
#include "exchange/sizes/sizes.h"
#include "ferry/detail/cuda/launch/trace_launch.h"
#include "ferry/detail/cuda/state/cuda_check.h"
#include "ferry/detail/cuda/steps/scale_tiles.h"
#include "ferry/detail/layout/result_layout.h"

namespace ferry::cuda {
namespace {

int device_attribute(cudaDeviceAttr attribute, int device) {
  int value = 0;
  cuda_check(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
  return value;
}

// Buffers of a block: a message, or a result, of at least one team.
struct BlockBuffers {
  std::size_t bytes;
  std::string of;
  const char* smaller;  // what the caller may make smaller
};
void require_fits(const BlockBuffers& buffers, std::size_t most, int device, int rank) {
  if (buffers.bytes > most)
    refuse(ErrorKind::unsupported, rank, "{} needs {} bytes of shared memory in a block; device {} has {}. Make {}",
           buffers.of, buffers.bytes, device, most, buffers.smaller);
}

}  // namespace

KernelPlan::KernelPlan(const RankDevice& device, int rank, const Shape& shape, const ExchangeOptions& options,
                       const Plan& plan, const ExchangeKernels& kernels)
    : plan_(plan),
      table_parts_(plan.shape.top_k, plan.map.has_remote_ranks()),
      routing_words_(cuda::routing_words(plan)),
      multiprocessors_(device_attribute(cudaDevAttrMultiProcessorCount, device.index)),
      reserved_multiprocessors_(options.gpu.reserve_sms),
      exchanges_(options.concurrent * device.ranks),
      local_fraction_(static_cast<double>(plan.shape.experts) / shape.experts),
      may_copy_results_(kernels.combine.copies_rows &&
                        device_attribute(cudaDevAttrComputeCapabilityMajor, device.index) >= 9),
      reads_rows_twice_(has_row_scale(options.result_format)),
      only_by_source_(options.row_orders == RowOrders{RowOrder::by_source}) {
  const auto most_shared =
      static_cast<std::size_t>(device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index));
  const bool has_by_source = plan_.map.has_token_lists();
  const int buffer_teams = dispatch_buffer_teams(plan_);
  const std::size_t for_dispatch =
      has_by_source ? by_source_shared_bytes(plan_, buffer_teams) : dispatch_shared_bytes(plan_, buffer_teams);
  const BlockBuffers messages{for_dispatch,
                              fmt::format("{} in the format {}, {} bytes a message,", to_string(shape),
                                          options.format.name(), plan.map.message_bytes()),
                              "hidden or experts smaller, or the rows of a bytes_format"};
  const BlockBuffers results{combine_shared_bytes(plan_),
                             fmt::format("{} with result_format {}, {} bytes a result,", to_string(shape),
                                         options.result_format.name(), plan.map.result_bytes()),
                             "hidden smaller, or give a result_format of fewer bits"};
  require_fits(messages, most_shared, device.index, rank);
  require_fits(results, most_shared, device.index, rank);
  has_pipeline_ = kernels.combine.has_pipeline && combine_pipeline_bytes() <= most_shared;
  const auto load = [&](const DispatchLauncher& launcher) {
    LoadedKernel kernel;
    kernel.can_pair_blocks = launcher.prepare_paired(kThreads, for_dispatch, options.row_orders);
    kernel.blocks_per_multiprocessor = launcher.prepare(kThreads, for_dispatch, options.row_orders);
    return kernel;
  };
  dispatch_ = load(kernels.dispatch);
  given_rows_ = load(kernels.given_rows);
  const bool weighed = plan_.map.has_weights_beside_results();
  combine_.blocks_per_multiprocessor = kernels.combine.prepare(kThreads, combine_shared_bytes(plan_),
                                                               has_pipeline_ ? combine_pipeline_bytes() : 0, weighed);
  if (kernels.f16_combine != nullptr)
    f16_combine_.blocks_per_multiprocessor =
        kernels.f16_combine->prepare(kThreads, combine_shared_bytes(plan_), 0, weighed);
  scales_.blocks_per_multiprocessor = prepare_scales(plan_);
  prepare_more_rows();
  prepare_keep_routing();
  if (options.short_handles) prepare_short_handles();
  prepare_masked_sources();
  prepare_trace();
  kernels.small.prepare(plan_);
  kernels.receive.prepare(plan_);
  for (const LoadedKernel& kernel : {dispatch_, given_rows_, combine_})
    if (most_blocks(kernel) < kLeastBlocks)
      refuse(ErrorKind::invalid_argument, rank,
             "concurrent is {}, {} of the ranks share device {}, and reserve_sms is {}: of its {} multiprocessors a "
             "kernel would have {} blocks, and needs {} or more",
             options.concurrent, device.ranks, device.index, options.gpu.reserve_sms, multiprocessors_,
             most_blocks(kernel), kLeastBlocks);
  log_loaded(device.index, rank);
  const RowLayout layout = row_layout(shape, options, rank);
  if (scales_.blocks_per_multiprocessor != 0)
    scale_words_ = scattered_scale_words(layout.scale_layout, static_cast<int>(size_of(layout.scale_dtype)),
                                         layout.scales_per_row, layout.payload_row_bytes);
}

void KernelPlan::log_loaded(int device, int rank) const {
  debug_log(DebugLevel::info, rank, [&] {
    return fmt::format(
        "kernels on device {}: {} multiprocessors, {} of them reserved, for {} exchanges; dispatch {} blocks each, "
        "pairs of blocks {}; combine {} blocks each, rows through shared memory {}; scales by a kernel of their own {}",
        device, multiprocessors_, reserved_multiprocessors_, exchanges_, dispatch_.blocks_per_multiprocessor,
        dispatch_.can_pair_blocks ? "fit" : "refused", combine_.blocks_per_multiprocessor,
        has_pipeline_ ? "fit" : "refused", scales_.blocks_per_multiprocessor != 0 ? "fit" : "refused");
  });
}

int KernelPlan::most_blocks(const LoadedKernel& kernel) const {
  return max_resident_blocks(multiprocessors_, kernel.blocks_per_multiprocessor, exchanges_, reserved_multiprocessors_);
}

DeviceLimits KernelPlan::limits(const LoadedKernel& kernel, int max_blocks) const {
  DeviceLimits limits{multiprocessors_, kernel.blocks_per_multiprocessor, most_blocks(kernel), is_exclusive()};
  if (max_blocks > 0) limits.max_blocks = std::min(limits.max_blocks, max_blocks);
  return limits;
}

int KernelPlan::most_small_blocks(int max_blocks) const {
  const int blocks = std::max(1, multiprocessors_ - reserved_multiprocessors_);
  return max_blocks > 0 ? std::min(blocks, max_blocks) : blocks;
}

DispatchLaunch KernelPlan::dispatch(int num_tokens, Halves halves, DispatchKernel which, RowOrder order,
                                    int max_blocks) const {
  const LoadedKernel& kernel = which == DispatchKernel::given_rows ? given_rows_ : dispatch_;
  DispatchLaunch launch{};
  launch.counts_all = one_block_counts_all(num_tokens, plan_.shape.top_k, routing_words_);
  launch.parts = table_parts_.count(num_tokens);
  const Problem problem{.ranks = plan_.shape.ranks,
                        .num_tokens = num_tokens,
                        .arrivals = likely_arrivals(num_tokens),
                        .table_parts = launch.parts,
                        .counts_all = launch.counts_all,
                        .buffer_teams = dispatch_buffer_teams(plan_),
                        .sends = halves.sends,
                        .receives = halves.receives,
                        .hidden = plan_.shape.hidden,
                        .message_bytes = static_cast<int>(plan_.map.message_bytes()),
                        .groups = plan_.groups(),
                        .top_k = plan_.shape.top_k,
                        .local_fraction = local_fraction_,
                        .order = order,
                        .scale_words = scale_words_,
                        .has_remote_ranks = plan_.map.has_remote_ranks(),
                        .can_pair_blocks = kernel.can_pair_blocks && which != DispatchKernel::receives};
  const DeviceLimits most = limits(kernel, max_blocks);
  launch.policy = dispatch_policy(most, problem);
  launch.backs_off = backs_off(problem);
  const DispatchRoles& roles = launch.policy.roles;
  launch.parts_per_routing_block = parts_per_routing_block(problem, std::max(1, roles.table_blocks()));
  launch.scales_follow = stores_scales_last(most, problem, launch.policy.thread_blocks());
  const int teams = halves.sends ? kThreads / roles.send_team_threads : 0;
  launch.lists_tokens = halves.sends && halves.receives && order == RowOrder::by_source;
  launch.block_bytes = static_cast<std::uint32_t>(launch.lists_tokens ? by_source_shared_bytes(plan_, teams)
                                                                      : dispatch_shared_bytes(plan_, teams));
  return launch;
}

CombineLaunch KernelPlan::combine(int num_tokens, Halves halves, SumTypes types, bool exact, RowOrder order,
                                  int max_blocks) const {
  const Problem problem{.ranks = plan_.shape.ranks,
                        .num_tokens = num_tokens,
                        .arrivals = likely_arrivals(num_tokens),
                        .buffer_teams = combine_buffer_teams(plan_),
                        .sends = halves.sends,
                        .receives = halves.receives,
                        .hidden = plan_.shape.hidden,
                        .result_bytes = static_cast<int>(plan_.map.result_bytes()),
                        .reads_rows_twice = reads_rows_twice_,
                        .top_k = plan_.shape.top_k,
                        .local_fraction = local_fraction_,
                        .order = order,
                        .has_remote_ranks = plan_.map.has_remote_ranks(),
                        .exact = exact,
                        .may_copy_results = may_copy_results_,
                        .has_pipeline = has_pipeline_ && !types.rows_are_f32 && !types.has_f16};
  CombineLaunch launch{};
  launch.policy = combine_policy(limits(types.has_f16 ? f16_combine_ : combine_, max_blocks), problem);
  launch.backs_off = backs_off(problem);
  launch.shared_bytes = launch.policy.roles.pipelined ? combine_pipeline_bytes() : combine_shared_bytes(plan_);
  return launch;
}

}  // namespace ferry::cuda
