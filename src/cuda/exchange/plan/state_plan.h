// StatePlan: where things lie in the device memory that an exchange has besides the symmetric memory. One text says it
// to the exchange that allocates, and to cuda_state_bytes, which is asked before.
#pragma once

#include <cstddef>

#include "ferry/detail/protocol/contracts/round.h"
#include "ferry/exchange.h"

namespace ferry::cuda {

// Offsets in bytes.
struct StatePlan {
  StatePlan(const Plan& plan, const ExchangeOptions& options);

  std::size_t state = 0;          // DeviceState
  std::size_t masks = 0;          // RoundMasks::bytes
  std::size_t counters = 0;       // u64 [3, ranks], then [formats, ranks, local experts]: StatsWords and waiting times
  std::size_t arrived_rows = 0;   // HandleRow [ranks, max_tokens, top_k]
  std::size_t arrived_slots = 0;  // u8 [ranks, max_tokens]
  std::size_t row_starts = 0;     // u32 [row_start_words]
  std::size_t block_counts = 0;   // DeviceWord<Epoch> [table parts, experts]
  std::size_t waited_before = 0;  // u64 [ranks]
  std::size_t waited_before_sums = 0;  // u64 [ranks]
  std::size_t message_counts = 0;      // u32 [ranks, message_chunks]
  std::size_t combined_rows = 0;       // as arrived_rows: those of a handle that fit
  std::size_t fitting_starts = 0;      // as row_starts
  std::size_t destination_ids = 0;     // i32 [max_tokens, top_k], where rows may be by_source
  std::size_t more_heaps = 0;          // address [ranks - kMaxGpuRanks]: PeerLinks::more_heaps
  std::size_t whole_handles = 0;       // with short_handles: [2, HandleSizes], of a dispatch and of a combine
  std::size_t trace = 0;               // TraceRecords
  std::size_t bytes = 0;               // of all

 private:
  std::size_t take(std::size_t wanted);
};

}  // namespace ferry::cuda
