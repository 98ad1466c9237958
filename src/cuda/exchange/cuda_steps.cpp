#include "cuda/exchange/cuda_steps.h"

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include "base/debug_log.h"
#include "cuda/device/nvtx_range.h"
#include "cuda/device/refuse.h"
#include "cuda/exchange/plan/state_plan.h"
#include "cuda/policy/policy_text.h"
#include "exchange/sizes/plan.h"
#include "ferry/detail/cuda/state/cuda_check.h"
#include "ferry/detail/cuda/steps/scale_tiles.h"
#include "ferry/detail/layout/abort_word.h"

namespace ferry::cuda {
namespace {

template <class Policy>
void log_launch(int rank, const char* kernel, int num_tokens, const Policy& policy) {
  debug_log(DebugLevel::trace, rank, [&] {
    std::ostringstream text;
    text << kernel << " kernel, " << num_tokens << " tokens: " << policy;
    return text.str();
  });
}

}  // namespace

CudaSteps::CudaSteps(const RankDevice& device, int rank, const Shape& shape, const ExchangeOptions& options,
                     const HeapMap& map, const Launchers& launchers, GpuHeaps heaps)
    : device_(device),
      rank_(rank),
      num_experts_(shape.experts),
      row_bytes_(row_bytes_in(shape, options, rank)),
      plan_(make_plan(shape, options, map, rank)),
      heaps_(std::move(heaps)),
      formats_(format_plans(device, rank, shape, options, map, launchers)),
      checks_(device, rank, launchers.of_program),
      masked_at_start_(options.skip_a2a ? RankMask{} : options.mask),
      counts_(plan_) {
  for (int format = 0; format < num_formats(options); ++format)
    min_row_capacity_ = std::max(min_row_capacity_, row_layout(shape, options, rank, format).min_row_capacity);
  header_ = handle_header(rank, shape, options, {.alignment = plan_.alignment});
  plan_memory();
  if (!options.skip_a2a) masks_.add(options.mask);
}

CudaSteps::~CudaSteps() {
  if (device_.deferred_free != nullptr) {
    if (kernel_trace_ != nullptr) kernel_trace_->finish();
    device_.deferred_free->keep(std::make_shared<GpuHeaps>(std::move(heaps_)));
    device_.deferred_free->keep(std::move(memory_));  // together with the heaps: freeing it waits for the device, too
    record_.free_with(*device_.deferred_free);
    counts_.free_with(*device_.deferred_free);
    return;
  }
  int before = 0;
  cudaGetDevice(&before);
  cudaSetDevice(device_.index);
  cudaDeviceSynchronize();  // this rank's kernels write to memory that heaps_ keeps alive
  if (kernel_trace_ != nullptr) kernel_trace_->finish();
  cudaSetDevice(before);
}

void CudaSteps::plan_memory() {
  const auto ranks = static_cast<std::size_t>(plan_.shape.ranks);
  const StatePlan at(plan_, formats_.size());
  memory_ = std::make_shared<DeviceMemory>(at.bytes);
  debug_log(DebugLevel::info, rank_,
            [&] { return fmt::format("device {}: {} bytes beside the symmetric memory", device_.index, at.bytes); });

  masks_ = RoundMasks(plan_.shape.ranks, memory_->as<std::uint8_t>(at.masks));
  stats_.messages = memory_->as<DeviceWord<std::uint64_t>>(at.counters);
  stats_.bytes = stats_.messages + ranks;
  links_.waited_ns = stats_.bytes + ranks;
  stats_.received = received_ = links_.waited_ns + ranks;
  arrived_ = {memory_->as<HandleRow>(at.arrived_rows), memory_->as<std::uint8_t>(at.arrived_slots),
              row_starts_at(plan_, memory_->as<std::uint32_t>(at.row_starts))};
  block_counts_ = memory_->as<DeviceWord<Epoch>>(at.block_counts);
  waited_before_ = memory_->as<std::uint64_t>(at.waited_before);
  message_counts_ = memory_->as<std::uint32_t>(at.message_counts);
  wide_weights_ = memory_->as<float>(at.wide_weights);
  combined_rows_ = memory_->as<HandleRow>(at.combined_rows);
  fitting_starts_ = row_starts_at(plan_, memory_->as<std::uint32_t>(at.fitting_starts));
  destination_ids_ = memory_->as<std::int32_t>(at.destination_ids);
  trace_at_ = at.trace;
  set_links(memory_->as<DeviceState>(at.state), memory_->as<std::byte*>(at.more_heaps));
}

void CudaSteps::set_links(DeviceState* state, std::byte** more_heaps) {
  links_.rank = plan_.rank;
  links_.size = plan_.shape.ranks;
  std::vector<std::byte*> heaps;
  for (const auto& heap : heaps_.all) heaps.push_back(heap.get());
  const std::size_t first = std::min(heaps.size(), std::size_t{kMaxGpuRanks});  // what kernels have in their parameter
  std::copy_n(heaps.begin(), first, links_.heap);
  links_.more_heaps = more_heaps;
  links_.own = heaps[static_cast<std::size_t>(plan_.rank)];
  links_.table_parts = now().kernel_plan.table_parts();
  links_.tag = RoundTag(static_cast<std::uint32_t>(plan_.shape.max_tokens));
  links_.abort_words = plan_.map.aborted(0);
  links_.state = state;
  links_.record = record_.host();

  DeviceState initial;
  initial.dispatched.raw = kFirstEpoch - 1;
  cuda_check(cudaMemcpyAsync(state, &initial, sizeof initial, cudaMemcpyHostToDevice, cudaStreamPerThread),
             "cudaMemcpyAsync");
  if (heaps.size() > first)
    cuda_check(
        cudaMemcpyAsync(static_cast<void*>(more_heaps), static_cast<const void*>(heaps.data() + first),
                        (heaps.size() - first) * sizeof(std::byte*), cudaMemcpyHostToDevice, cudaStreamPerThread),
        "cudaMemcpyAsync");
  cuda_check(cudaStreamSynchronize(cudaStreamPerThread), "cudaStreamSynchronize");
}

void CudaSteps::start(const CallOptions& call, std::chrono::milliseconds deadline) {
  poll_calls();
  checks_.check_call(call);
  links_.deadline_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(deadline).count());
  stream_ = static_cast<cudaStream_t>(call.stream);
  max_blocks_ = call.max_blocks;
}

void CudaSteps::take_format(int format) {
  format_ = static_cast<std::size_t>(format);
  plan_.map.set_message_bytes(now().message_bytes);
  plan_.alignment = header_.alignment = now().alignment;
  stats_.received = received_ + format_ * static_cast<std::size_t>(plan_.shape.ranks * plan_.local_experts());
}

void CudaSteps::set_hooks(const HookBytes& hooks) { links_.hooks = hooks; }

void CudaSteps::poll() {
  poll_calls();
  record_.tell_overflow(rank_);
}

void CudaSteps::poll_calls() {
  if (record_.has_failed()) {
    if (end().get() == nullptr) end().note(record_.failure(links_, masks_));
    record_.require_no_bad_handle(rank_);
    ExchangeEnd::raise(*end().get());
  }
  record_.require_no_bad_ids(rank_, num_experts_);
  record_.require_good_input_scale(rank_);
  record_.require_good_counts(rank_);
  record_.require_enough_rows(rank_, min_row_capacity_);
}

// Kernels that run look for these words while they wait. So the copies are on a stream that waits for no kernel. While
// the heaps are given back, no kernel waits.
void CudaSteps::tell_all(Epoch word) const {
  const std::lock_guard lock(heaps_guard_);
  if (!has_heaps_) return;
  const DeviceScope scope(device_.index);
  const SideStream stream;
  for (int peer = 0; peer < links_.size; ++peer) {
    if (is_masked(masked_at_start_, peer)) continue;
    if (std::byte* const heap = heaps_.all[static_cast<std::size_t>(peer)].get(); heap != nullptr)
      cuda_check(cudaMemcpyAsync(heap + links_.own_abort_word(), &word, sizeof word, cudaMemcpyDefault, stream.get()),
                 "cudaMemcpyAsync");
    else if (device_.put_word)
      device_.put_word(peer, links_.own + links_.own_abort_word(), word);
  }
  stream.wait();
}

// The word goes to this rank's own memory, too, for its own kernels.
void CudaSteps::tell_aborted(int missing) {
  tell_all(abort_word(0, false, is_masked(masked_at_start_, missing) ? links_.rank : missing) | kAborts);
}

// Kernels that are still to run send what they send. On GPUs one number counts all (DeviceState::dispatched), and a
// captured graph may have sent rounds that the host never saw.
void CudaSteps::tell_left(const CallOrder& order) {
  DeviceState state;
  {
    const DeviceScope scope(device_.index);
    const SideStream stream;
    cuda_check(cudaMemcpyAsync(&state, links_.state, sizeof state, cudaMemcpyDeviceToHost, stream.get()),
               "cudaMemcpyAsync");
    stream.wait();
  }
  const Epoch called = order.dispatch_ticket().message;
  const Epoch sent = std::max(called, state.dispatched.raw);
  const bool combined = order.combine() != Progress::none || sent > called;
  tell_all(left_word({sent, sent, combined ? sent : sent - 1}, links_.rank));
}

void CudaSteps::check_dispatch_input(const CheckContext&, const DispatchInput& in, DispatchArgs& args) {
  if (has_excess(args.num_tokens) && capture_of(stream_) != kNoCapture)
    refuse(ErrorKind::invalid_argument, rank_, "tokens has {} rows; the limit is max_tokens = {}", args.num_tokens,
           plan_.shape.max_tokens);
  checks_.check_dispatch_input(in, args);
  args.input_scale_at = in.input_scale;
}

void CudaSteps::send(const Ticket& ticket, const DispatchArgs& args) {
  const NvtxRange range("ferry dispatch: send", rank_);
  const std::uint8_t* masked = masks_.newest();
  if (has_excess(ticket.num_tokens)) {
    send_excess(ticket);
  } else {
    const DispatchArgs routed = begin_dispatch(ticket, args);
    run_dispatch(ticket, masked, &routed, nullptr);
  }
  open_mask_ = masked;
  order_.begin_dispatch(capture_of(stream_), true);
}

void CudaSteps::receive(const Ticket& ticket, const RowsOut& rows) {
  const NvtxRange range("ferry dispatch: receive", rank_);
  if (has_excess(ticket.num_tokens)) await_counts(ticket);  // throws
  note_waiting_times(rows);
  run_dispatch(ticket, open_mask_, nullptr, &rows);
  keep_routing(ticket, rows);
  write_more_rows(ticket, rows);
  note_overflow(rows);
  order_.end_dispatch();
}

void CudaSteps::dispatch(const Ticket& ticket, const DispatchArgs& args, const RowsOut& rows) {
  const NvtxRange range("ferry dispatch", rank_);
  const std::uint8_t* masked = masks_.newest();
  const DispatchArgs routed = begin_dispatch(ticket, args);
  if (ticket.rows.order == RowOrder::by_expert && !rows.may_overflow) {
    note_waiting_times(rows);
    run_dispatch(ticket, masked, &routed, &rows);
  } else {
    run_dispatch(ticket, masked, &routed, nullptr);
    note_waiting_times(rows);
    run_dispatch(ticket, masked, nullptr, &rows);
  }
  open_mask_ = masked;
  order_.begin_dispatch(capture_of(stream_), false);
  keep_routing(ticket, rows);
  write_more_rows(ticket, rows);
  note_overflow(rows);
}

void CudaSteps::send_back(const Ticket& ticket, const CombineArgs& args) {
  const NvtxRange range("ferry combine: send", rank_);
  begin_combine(ticket, args);
  return_weights(ticket, args);
  weigh(ticket, args);
  send_zero_results(ticket);
  run_combine(ticket, {.sends = true, .receives = false}, args, nullptr);
  order_.begin_combine(capture_of(stream_), ticket.handle != nullptr, true);
}

void CudaSteps::reduce(const Ticket& ticket, const CombineArgs& sent, const CombineOut& sums) {
  const NvtxRange range("ferry combine: sum", rank_);
  if (ticket.handle != nullptr) launch_handle_call(handle_call(Operation::combine, ticket));
  run_combine(ticket, {.sends = false, .receives = true}, sent, &sums);
  sum_returned(ticket, sums);
  order_.end_combine();
}

void CudaSteps::combine(const Ticket& ticket, const CombineArgs& args, const CombineOut& sums) {
  const NvtxRange range("ferry combine", rank_);
  begin_combine(ticket, args);
  return_weights(ticket, args);
  weigh(ticket, args);
  send_zero_results(ticket);
  run_combine(ticket, {.sends = true, .receives = true}, args, &sums);
  sum_returned(ticket, sums);
  order_.begin_combine(capture_of(stream_), ticket.handle != nullptr, false);
}

// The parameters that both kernels have. A captured graph keeps their values of the capture.
template <class Params>
Params CudaSteps::params_of(const std::uint8_t* masked, Halves halves) const {
  Params params;
  params.plan = plan_;
  params.links = links_;
  params.plan.masked = params.links.masked = masked;
  params.sends = halves.sends;
  params.receives = halves.receives;
  params.arrived = arrived_;
  params.stats = stats_;
  params.step_times = records_ ? &kernel_trace_->records().steps() : nullptr;
  return params;
}

void CudaSteps::enqueue_dispatch(const Ticket& ticket, const std::uint8_t* masked, const DispatchArgs* in,
                                 const RowsOut* out) {
  const Halves halves{.sends = in != nullptr, .receives = out != nullptr};
  const bool given_rows = in != nullptr && in->is_encoded();
  const bool in_order = out != nullptr && (out->order != RowOrder::by_expert || out->may_overflow);
  const DispatchLaunch launch = now().kernel_plan.dispatch(ticket.num_tokens, halves,
                                                           in_order     ? DispatchKernel::receives
                                                           : given_rows ? DispatchKernel::given_rows
                                                                        : DispatchKernel::encodes,
                                                           max_blocks_);
  auto params = params_of<DispatchParams>(masked, halves);
  if (in != nullptr) params.in = *in;
  if (out != nullptr) params.out = *out;
  params.in.shared_begin = ticket.shared.begin;
  params.in.shared_end = ticket.shared.end;
  params.links.backs_off = launch.backs_off;
  params.routing = {.record = links_.record,
                    .state = links_.state,
                    .counts_all = launch.counts_all,
                    .words = now().kernel_plan.routing_words(),
                    .parts = launch.parts,
                    .parts_per_routing_block = launch.parts_per_routing_block,
                    .block_counts = block_counts_};
  params.num_experts = num_experts_;
  params.roles = launch.policy.roles;
  params.block_bytes = launch.block_bytes;
  log_launch(rank_, "dispatch", ticket.num_tokens, launch.policy);
  if (params.out.scales.layout == ScaleLayout::none) params.out.stores_scales = false;  // at strides, or none
  if (in_order) {
    now().kernels.receive.receive(params, launch.policy, stream_);
    return await_lists(params, *out);
  }
  // The scales kernel finds a row's message by its src_info.
  const bool scales_follow =
      launch.scales_follow && out != nullptr && params.out.stores_scales && out->src_info != nullptr;
  if (scales_follow) params.out.stores_scales = false;
  (given_rows ? now().kernels.given_rows : now().kernels.dispatch).launch(params, launch.policy, stream_);
  if (scales_follow) launch_scales_kernel(*out);
  if (in != nullptr && plan_.map.has_token_lists())
    now().kernels.receive.list_tokens({params.plan, params.links, in->num_tokens, stats_.bytes}, launch.policy,
                                      stream_);
  if (out != nullptr) await_lists(params, *out);
}

void CudaSteps::await_lists(const DispatchParams& params, const RowsOut& out) const {
  if (!plan_.map.has_token_lists() || !plan_.map.has_remote_ranks() || out.order == RowOrder::by_source) return;
  now().kernels.receive.await_lists({params.plan, params.links}, stream_);
}

// I20
void CudaSteps::launch_scales_kernel(const RowsOut& out) const {
  ScalesParams params;
  params.plan = plan_;
  params.state = links_.state;
  params.heap = links_.own;
  params.scales = out.scales;
  params.by_strips = Divider(scale_strips(out.scales));
  params.src_info = out.src_info;
  params.payload_bytes = out.row_bytes;
  params.starts = arrived_.starts.of_source;
  const DeviceLimits most = now().kernel_plan.scales_limits(max_blocks_);
  launch_scales(params, most.blocks(), most.exclusive, stream_);
}

void CudaSteps::enqueue_combine(const Ticket& ticket, Halves halves, const CombineArgs& in, const CombineOut* out) {
  auto params = params_of<CombineParams>(ticket.handle != nullptr ? masks_.newest() : open_mask_, halves);
  params.in = in;
  if (out != nullptr && plan_.exact) params.in.weights = widened(in.weights, ticket.num_tokens);
  params.is_extra = is_extra_;
  params.arrived = arrived_of(ticket);
  if (plan_.map.has_late_weights()) params.arrived.rows = combined_rows_;
  params.own = own_table_of(ticket);
  if (in.num_rows == 0) {  // a kernel that needs rows reads valid memory, and reports the error
    params.in.rows = links_.own;
    params.in.row_stride = 0;
    params.in.dtype = DType::bf16;
  }
  if (out != nullptr) params.out = *out;
  params.num_tokens = std::max(0, ticket.num_tokens);
  const int likely_tokens = ticket.num_tokens < 0 ? plan_.shape.max_tokens : ticket.num_tokens;
  const SumTypes types{params.in.dtype == DType::f32, has_f16(params.in, out)};
  const CombineLaunch launch = now().kernel_plan.combine(likely_tokens, halves, types, max_blocks_);
  params.links.backs_off = launch.backs_off;
  params.roles = launch.policy.roles;
  log_launch(rank_, "combine", ticket.num_tokens, launch.policy);
  (types.has_f16 ? *now().kernels.half : now().kernels.combine)
      .launch(params, launch.policy, launch.shared_bytes, stream_);
}

}  // namespace ferry::cuda
