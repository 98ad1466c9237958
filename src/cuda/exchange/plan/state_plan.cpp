#include "cuda/exchange/plan/state_plan.h"

#include <algorithm>

#include "cuda/exchange/plan/round_masks.h"
#include "exchange/checks/valid_options.h"
#include "exchange/sizes/plan.h"
#include "exchange/sizes/sizes.h"
#include "ferry/cuda/cuda_world.h"
#include "ferry/detail/cuda/state/arrived_rows.h"
#include "ferry/detail/cuda/state/device_state.h"
#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/state/trace_records.h"
#include "ferry/detail/protocol/contracts/handle.h"

namespace ferry::cuda {

std::size_t StatePlan::take(std::size_t wanted) {
  const std::size_t at = bytes;
  bytes += HeapMap::whole_lines(wanted);
  return at;
}

StatePlan::StatePlan(const Plan& plan, const ExchangeOptions& options) {
  const auto formats = static_cast<std::size_t>(num_formats(options));
  const auto ranks = static_cast<std::size_t>(plan.shape.ranks);
  const auto experts = static_cast<std::size_t>(plan.local_experts());
  const std::size_t tokens = ranks * static_cast<std::size_t>(plan.shape.max_tokens);
  state = take(sizeof(DeviceState));
  masks = take(RoundMasks::bytes(plan.shape.ranks));
  counters = take((3 * ranks + formats * ranks * experts) * sizeof(std::uint64_t));
  arrived_rows = take(tokens * static_cast<std::size_t>(plan.shape.top_k) * sizeof(HandleRow));
  arrived_slots = take(tokens);
  row_starts = take(static_cast<std::size_t>(row_start_words(plan)) * sizeof(std::uint32_t));
  block_counts =
      take(HeapMap::kMostTableParts * static_cast<std::size_t>(plan.shape.experts) * sizeof(DeviceWord<Epoch>));
  waited_before = take(ranks * sizeof(std::uint64_t));
  waited_before_sums = take(ranks * sizeof(std::uint64_t));
  message_counts =
      take(ranks * static_cast<std::size_t>(message_chunks(plan.shape.max_tokens)) * sizeof(std::uint32_t));
  const auto entries = static_cast<std::size_t>(plan.shape.max_tokens) * static_cast<std::size_t>(plan.shape.top_k);
  combined_rows = take(ranks * entries * sizeof(HandleRow));
  fitting_starts = take(static_cast<std::size_t>(row_start_words(plan)) * sizeof(std::uint32_t));
  destination_ids = take(plan.map.has_token_lists() ? entries * sizeof(std::int32_t) : 0);
  more_heaps = take(static_cast<std::size_t>(std::max(0, plan.shape.ranks - kMaxGpuRanks)) * sizeof(std::byte*));
  whole_handles = take(options.short_handles ? 2 * HandleSizes(plan).bytes() : 0);
  trace = take(TraceRecords::bytes(plan.shape.ranks));
}

}  // namespace ferry::cuda

namespace ferry {

std::size_t cuda_state_bytes(const Shape& shape, const ExchangeOptions& options, int rank) {
  require_valid(shape, options);
  row_layout(shape, options, rank);  // refuses a rank that is none
  return cuda::StatePlan(make_plan(shape, options, make_heap_map(shape, options, rank, false), rank), options).bytes;
}

}  // namespace ferry
