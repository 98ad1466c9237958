#include "cuda/exchange/state/exchange_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/debug_log.h"
#include "exchange/sizes/plan.h"
#include "exchange/sizes/sizes.h"
#include "ferry/detail/cuda/state/cuda_check.h"

namespace ferry::cuda {

ExchangeState::ExchangeState(const RankDevice& device, int rank, const Shape& shape, const ExchangeOptions& options,
                             const HeapMap& map, const Launchers& launchers, const DeviceHeaps& heaps)
    : device_(device),
      rank_(rank),
      num_experts_(shape.experts),
      row_bytes_(row_bytes_in(shape, options, rank)),
      plan_(make_plan(shape, options, map, rank)),
      formats_(format_plans(device, rank, shape, options, map, launchers)),
      state_plan_(plan_, options) {
  plan_memory();
  set_links(heaps);
  if (!options.skip_a2a) masks_.add(options.mask);
}

void ExchangeState::plan_memory() {
  const auto ranks = static_cast<std::size_t>(plan_.shape.ranks);
  memory_ = std::make_shared<DeviceMemory>(state_plan_.bytes);
  debug_log(DebugLevel::info, rank_, [&] {
    return fmt::format("device {}: {} bytes beside the symmetric memory", device_.index, state_plan_.bytes);
  });

  masks_ = RoundMasks(plan_.shape.ranks, memory_->as<std::uint8_t>(state_plan_.masks));
  counters_.messages = memory_->as<DeviceWord<std::uint64_t>>(state_plan_.counters);
  counters_.bytes = counters_.messages + ranks;
  links_.waited_ns = counters_.bytes + ranks;
  counters_.received = received_ = links_.waited_ns + ranks;
  arrived_ = {memory_->as<HandleRow>(state_plan_.arrived_rows), memory_->as<std::uint8_t>(state_plan_.arrived_slots),
              row_starts_at(plan_, memory_->as<std::uint32_t>(state_plan_.row_starts))};
}

void ExchangeState::set_links(const DeviceHeaps& all) {
  links_.rank = plan_.rank;
  links_.size = plan_.shape.ranks;
  std::vector<std::byte*> heaps;
  for (const auto& heap : all) heaps.push_back(heap.get());
  const std::size_t first = std::min(heaps.size(), std::size_t{kMaxGpuRanks});  // what kernels have in their parameter
  std::copy_n(heaps.begin(), first, links_.heap);
  auto* const more_heaps = memory_->as<std::byte*>(state_plan_.more_heaps);
  links_.more_heaps = more_heaps;
  links_.own = heaps[static_cast<std::size_t>(plan_.rank)];
  links_.table_parts = format().kernel_plan.table_parts();
  links_.tag = RoundTag(excess_mark(plan_.shape));
  links_.abort_words = plan_.map.aborted(0);
  links_.dispatching_words = plan_.map.dispatching(0);
  links_.combining_words = plan_.map.combining(0);
  links_.state = memory_->as<DeviceState>(state_plan_.state);
  links_.record = record_.host();

  DeviceState initial;
  initial.dispatched.raw = kFirstEpoch - 1;
  cuda_check(cudaMemcpyAsync(links_.state, &initial, sizeof initial, cudaMemcpyHostToDevice, cudaStreamPerThread),
             "cudaMemcpyAsync");
  if (heaps.size() > first)
    cuda_check(
        cudaMemcpyAsync(static_cast<void*>(more_heaps), static_cast<const void*>(heaps.data() + first),
                        (heaps.size() - first) * sizeof(std::byte*), cudaMemcpyHostToDevice, cudaStreamPerThread),
        "cudaMemcpyAsync");
  cuda_check(cudaStreamSynchronize(cudaStreamPerThread), "cudaStreamSynchronize");
}

void ExchangeState::free_with(DeferredFree& deferred) {
  deferred.keep(std::move(memory_));
  record_.free_with(deferred);
}

void ExchangeState::begin_call(const CallOptions& call, std::chrono::milliseconds deadline) {
  links_.deadline_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(deadline).count());
  stream_ = static_cast<cudaStream_t>(call.stream);
  max_blocks_ = call.max_blocks;
  dispatch_call_ = 0;
}

void ExchangeState::take_format(int format) {
  format_ = static_cast<std::size_t>(format);
  plan_.map.set_message_bytes(formats_[format_].message_bytes);
  plan_.alignment = formats_[format_].alignment;
  counters_.received = received_ + format_ * static_cast<std::size_t>(plan_.shape.ranks * plan_.local_experts());
}

void ExchangeState::read_memory(const void* from, void* to, std::size_t bytes) const {
  const DeviceScope scope(device_.index);
  const SideStream stream;
  cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream.get()), "cudaMemcpyAsync");
  stream.wait();
}

DeviceState ExchangeState::read() const {
  DeviceState state;
  read_memory(links_.state, &state, sizeof state);
  return state;
}

void ExchangeState::read_heap(std::size_t offset, void* to, std::size_t bytes) const {
  read_memory(links_.own + offset, to, bytes);
}

Stats ExchangeState::stats() const {
  const DeviceScope scope(device_.index);
  const auto ranks = static_cast<std::size_t>(plan_.shape.ranks);
  const auto experts = static_cast<std::size_t>(plan_.local_experts());
  const std::size_t groups = ranks * experts;
  std::vector<std::uint64_t> words(3 * ranks + formats_.size() * groups);
  DeviceState state;
  SideStream stream;
  cuda_check(cudaMemcpyAsync(words.data(), counters_.messages, words.size() * sizeof words[0], cudaMemcpyDeviceToHost,
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
  stats.received.resize(groups);
  for (std::size_t i = 0; i < formats_.size() * groups; ++i) {
    const std::uint64_t rows = words[3 * ranks + i];
    stats.received[i % groups].tokens += rows;
    stats.received[i % groups].bytes += rows * row_bytes_[i / groups];
  }
  stats.non_finite_blocks = state.non_finite.raw;
  stats.dropped = state.dropped.raw;
  stats.dispatches = state.dispatches.raw;
  stats.combines = state.combines.raw;
  return stats;
}

}  // namespace ferry::cuda
