// The memory that ranks of a shape take: of the exchange, and of the tensors that its calls are given.
#pragma once

#include <cstdint>
#include <vector>

#include "ferry/exchange.h"
#include "tool/ranks/ranks.h"
#include "tool/text/table.h"

namespace ferry::app {

// What ranks with the same number of experts have.
struct RankTensors {
  int first = 0, last = 0;  // ranks
  int experts = 0;
  std::int64_t capacity = 0;   // rows
  std::int64_t even_rows = 0;  // that are filled where each expert gets as many tokens as any other
  std::uint64_t payload = 0, scales = 0, src_info = 0;
  std::uint64_t outputs = 0;  // of dispatch, all
  std::uint64_t results = 0;  // the experts' output, which combine takes
};

struct PlannedMemory {
  MemoryUse exchange;              // on each rank
  std::vector<RankTensors> ranks;  // those with most experts first
  std::uint64_t gpu_state = 0;     // of a GPU rank besides: about what cuda_state_bytes says

  std::uint64_t of_rank(const RankTensors& tensors) const {
    return exchange.total + gpu_state + tensors.outputs + tensors.results;
  }
  std::uint64_t most() const { return of_rank(ranks.front()); }
  std::uint64_t of_all_ranks() const;
};
PlannedMemory planned_memory(const Shape& shape, const ExchangeOptions& options, const Backend& backend);

Table region_table(const MemoryUse& use, int message_copies);
Table tensor_table(const std::vector<RankTensors>& ranks);

}  // namespace ferry::app
