#include "cuda/exchange/cuda_exchange.h"

#include <fmt/core.h>

#include <algorithm>

#include "cuda/exchange/abort_waits.h"
#include "cuda/world/refuse.h"
#include "exchange/plan.h"

namespace ferry::cuda {

CudaExchange::CudaExchange(const DevicePlace& place, int rank, const Shape& shape, const ExchangeOptions& options,
                           const HeapMap& map, const Launchers& launchers, DeviceHeaps heaps)
    : place_(place),
      rank_(rank),
      shape_(shape),
      options_(options),
      layout_(row_layout(shape, options, rank)),
      heaps_(std::move(heaps)),
      record_memory_(std::make_shared<PinnedMemory>(sizeof(HostRecord))),
      record_(static_cast<HostRecord*>(record_memory_->data())),
      dispatch_launcher_(launchers.find_dispatch(options.format.name())),
      combine_launcher_(launchers.combine) {
  const DeviceScope scope(place_.device);
  if (dispatch_launcher_ == nullptr)
    refuse(ErrorKind::unsupported, rank,
           "no GPU kernel for the format {}; give one of all_formats(), or compile kernels for it: CompiledExchange "
           "(ferry/cuda/compiled_exchange.cuh)",
           options.format.name());
  plan_ = make_plan(shape, options, map, rank);
  stream_probe_.create();
  plan_memory(map);
  prepare_kernels();
  if (!options.skip_a2a) masks_.add(options.mask);
}

CudaExchange::~CudaExchange() {
  if (place_.deferred_free != nullptr) {
    place_.deferred_free->keep(std::make_shared<DeviceHeaps>(std::move(heaps_)));
    place_.deferred_free->keep(std::move(memory_));  // no later than now: what is freed afterwards waits for the device
    place_.deferred_free->keep(std::move(record_memory_));
    return;
  }
  int before = 0;
  cudaGetDevice(&before);
  cudaSetDevice(place_.device);
  cudaDeviceSynchronize();  // this rank's kernels write to others' memory, which heaps_ keeps
  cudaSetDevice(before);
}

void CudaExchange::plan_memory(const HeapMap& map) {
  const auto ranks = static_cast<std::size_t>(plan_.shape.ranks);
  const auto experts = static_cast<std::size_t>(plan_.local_experts());
  std::size_t bytes = 0;
  const auto take = [&bytes](std::size_t wanted) {
    const std::size_t at = bytes;
    bytes += HeapMap::whole_lines(wanted);
    return at;
  };
  const std::size_t state = take(sizeof(DeviceState));
  const std::size_t masks = take(RoundMasks::bytes(plan_.shape.ranks));
  const std::size_t counters = take((3 * ranks + ranks * experts) * sizeof(std::uint64_t));
  const std::size_t tokens = ranks * static_cast<std::size_t>(plan_.shape.max_tokens);
  const std::size_t kept_rows = take(tokens * static_cast<std::size_t>(plan_.shape.top_k) * sizeof(HandleRow));
  const std::size_t kept_slots = take(tokens);
  const std::size_t kept_starts = take(static_cast<std::size_t>(row_start_words(plan_)) * sizeof(std::uint32_t));
  const std::size_t block_counts =
      take(HeapMap::kMostTableParts * static_cast<std::size_t>(plan_.shape.experts) * sizeof(DeviceWord<Epoch>));
  memory_ = std::make_shared<DeviceMemory>(bytes);

  masks_ = RoundMasks(plan_.shape.ranks, memory_->as<std::uint8_t>(masks));
  stats_.messages = memory_->as<DeviceWord<std::uint64_t>>(counters);
  stats_.bytes = stats_.messages + ranks;
  waited_ns_ = stats_.bytes + ranks;
  stats_.received = waited_ns_ + ranks;
  handle_ = {memory_->as<HandleRow>(kept_rows), memory_->as<std::uint8_t>(kept_slots),
             row_starts_at(plan_, memory_->as<std::uint32_t>(kept_starts))};
  routing_.block_counts = memory_->as<DeviceWord<Epoch>>(block_counts);
  links_.table_parts = TableParts(plan_.shape.top_k, plan_.map.has_remote_ranks());
  links_.tag = RoundTag(static_cast<std::uint32_t>(plan_.shape.max_tokens));

  links_.rank = plan_.rank;
  links_.size = plan_.shape.ranks;
  for (std::size_t peer = 0; peer < heaps_.size(); ++peer) links_.heap[peer] = heaps_[peer].get();
  links_.own = links_.heap[plan_.rank];
  links_.abort_words = map.aborted(0);
  links_.my_abort_word = map.aborted(plan_.rank);
  links_.state = memory_->as<DeviceState>(state);
  links_.record = record_;
  links_.waited_ns = waited_ns_;

  DeviceState initial;
  initial.dispatched.raw = kFirstEpoch - 1;
  cuda_check(cudaMemcpyAsync(links_.state, &initial, sizeof initial, cudaMemcpyHostToDevice, cudaStreamPerThread),
             "cudaMemcpyAsync");
  cuda_check(cudaStreamSynchronize(cudaStreamPerThread), "cudaStreamSynchronize");
}

void CudaExchange::check() {
  if (load_acquire(record_->failed) != 0) {
    round_.stage = Stage::broken;
    round_.broken_by = record_->wait;
    round_.broken_by.missing_rank = find_culprit();
    throw PeerMissing(round_.broken_by, describe(round_.broken_by));
  }
  if (load_acquire(record_->has_bad_id) != 0) {
    store_release(record_->has_bad_id, 0u);
    const std::uint32_t others = record_->num_bad - 1;
    refuse(ErrorKind::invalid_argument, rank_,
           "topk_ids[{}, {}] of an earlier dispatch is {}; it must be -1 (no expert) or 0 to {}, and distinct in a "
           "token. It counted as -1{}",
           record_->bad_token, record_->bad_k, record_->bad_id, shape_.experts - 1,
           others == 0
               ? ""
               : fmt::format(", and so did {} other bad id{} of that dispatch", others, others == 1 ? "" : "s"));
  }
  if (load_acquire(record_->has_few_rows) != 0) {
    store_release(record_->has_few_rows, 0u);
    refuse(
        ErrorKind::invalid_argument, rank_,
        "rows of an earlier combine had {} rows; its dispatch laid out {} (row_offsets[groups]). Its sums are wrong. "
        "{} rows are enough for any dispatch",
        record_->rows_given, record_->rows_laid_out, layout_.min_row_capacity);
  }
}

// I10
int CudaExchange::find_culprit() const {
  using std::chrono::milliseconds;
  const WaitRecord& failure = record_->wait;
  const auto deadline = milliseconds(links_.deadline_ns / 1'000'000);
  const auto* words = reinterpret_cast<const SignalWord*>(links_.own + links_.abort_words);
  AbortWaits waits(words, plan_.shape.ranks, std::clamp(deadline / 2, milliseconds(50), milliseconds(500)));
  const Epoch own = waits.word_now(plan_.rank);  // what this rank told the others
  const int waited_for = own == 0 ? failure.missing_rank : rank_waited_for(own);
  return follow_abort_words(failure.missing_rank, plan_.rank, waited_for, plan_.shape.ranks,
                            [&](int suspect) { return waits.word_of(suspect); });
}

void CudaExchange::add_to_mask(const RankMask& mask) {
  check_added_mask(context(), mask);
  const DeviceScope scope(place_.device);
  if (!options_.skip_a2a) masks_.add(mask);
}

void CudaExchange::dispatch_async(const DispatchInput& in, const CallOptions& call) {
  const DeviceScope scope(place_.device);
  round_.require_can_dispatch(rank_, "dispatch_async");
  begin(call);
  const DispatchArgs args = check_input(in);
  const Round round = round_of(args);
  run_dispatch(round, &args, nullptr, call);
  open_ = round;
  round_.stage = Stage::sent;
}

void CudaExchange::dispatch_wait(const DispatchOutput& out, const CallOptions& call) {
  const DeviceScope scope(place_.device);
  round_.require_stage(rank_, "dispatch_wait", Stage::sent, "a dispatch_async");
  begin(call);
  const RowsOut rows = check_dispatch_output(context(), out);
  require_outputs(out);
  run_dispatch(open_, nullptr, &rows, call);
  round_.stage = Stage::open;
}

void CudaExchange::dispatch(const DispatchInput& in, const DispatchOutput& out, const CallOptions& call) {
  const DeviceScope scope(place_.device);
  round_.require_can_dispatch(rank_, "dispatch");
  begin(call);
  const DispatchArgs args = check_input(in);
  const RowsOut rows = check_dispatch_output(context(), out);
  require_outputs(out);
  const Round round = round_of(args);
  run_dispatch(round, &args, &rows, call);
  open_ = round;
  round_.stage = Stage::open;
}

void CudaExchange::combine_async(const CombineInput& in, const CallOptions& call) {
  const DeviceScope scope(place_.device);
  round_.require_stage(rank_, "combine_async", Stage::open, "a dispatch");
  begin(call);
  const CombineArgs rows = check_rows(in);
  run_combine(&rows, nullptr, call);
  returning_ = rows;
  round_.stage = Stage::returning;
}

void CudaExchange::combine_wait(const CombineOutput& out, const CallOptions& call) {
  const DeviceScope scope(place_.device);
  round_.require_stage(rank_, "combine_wait", Stage::returning, "a combine_async");
  begin(call);
  const CombineOut sums = check_sums(out);
  run_combine(nullptr, &sums, call);
  round_.stage = Stage::closed;
}

void CudaExchange::combine(const CombineInput& in, const CombineOutput& out, const CallOptions& call) {
  const DeviceScope scope(place_.device);
  round_.require_stage(rank_, "combine", Stage::open, "a dispatch");
  begin(call);
  const CombineArgs rows = check_rows(in);
  const CombineOut sums = check_sums(out);
  run_combine(&rows, &sums, call);
  round_.stage = Stage::closed;
}

Stats CudaExchange::stats() const {
  const DeviceScope scope(place_.device);
  const auto ranks = static_cast<std::size_t>(plan_.shape.ranks);
  const auto experts = static_cast<std::size_t>(plan_.local_experts());
  std::vector<std::uint64_t> words(3 * ranks + ranks * experts);
  DeviceState state;
  SideStream stream;
  cuda_check(cudaMemcpyAsync(words.data(), stats_.messages, words.size() * sizeof words[0], cudaMemcpyDeviceToHost,
                             stream.get()),
             "cudaMemcpyAsync");
  cuda_check(cudaMemcpyAsync(&state, links_.state, sizeof state, cudaMemcpyDeviceToHost, stream.get()),
             "cudaMemcpyAsync");
  stream.wait();

  Stats stats;
  stats.ranks = plan_.shape.ranks;
  stats.local_experts = plan_.local_experts();
  const auto at = [&](std::size_t index) { return words.begin() + static_cast<std::ptrdiff_t>(index); };
  stats.messages_sent.assign(at(0), at(ranks));
  stats.bytes_sent.assign(at(ranks), at(2 * ranks));
  stats.waited_ns.assign(at(2 * ranks), at(3 * ranks));
  const std::uint64_t row_bytes = static_cast<std::uint64_t>(layout_.payload_row_bytes) +
                                  static_cast<std::uint64_t>(layout_.scales_per_row) * size_of(layout_.scale_dtype);
  for (std::size_t i = 3 * ranks; i < words.size(); ++i) stats.received.push_back({words[i], words[i] * row_bytes});
  stats.non_finite_blocks = state.non_finite.raw;
  stats.dropped = state.dropped.raw;
  stats.dispatches = state.dispatches.raw;
  stats.combines = state.combines.raw;
  return stats;
}

}  // namespace ferry::cuda
