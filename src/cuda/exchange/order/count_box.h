// CountBox: host memory in which a kernel tells the host what comes in a dispatch, and the host's wait for it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/exchange/order/record.h"
#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/protocol/contracts/round.h"

namespace ferry::cuda {

class CountBox {
 public:
  explicit CountBox(const Plan& plan);
  // `deferred` frees the memory later.
  void free_with(DeferredFree& deferred) { deferred.keep(std::move(memory_)); }

  // The next question: where its answer goes, and its number.
  void ask(CountParams& params);
  // Waits for the answer to the newest question, which goes to `stream`. Only the kernel has a deadline: while it has
  // not begun, no rank is missing. False: a kernel of this exchange gave up.
  bool await(const Record& record, cudaStream_t stream) const;

  // What the newest answer says.
  const ExcessTokens& excess() const { return counts_->excess; }
  int other_input() const { return counts_->other_input; }
  RowStarts starts(const Plan& plan) const { return row_starts_at(plan, words_); }
  const std::uint32_t* source_offsets(const Plan& plan) const { return words_ + row_start_words(plan); }
  bool is_by_counts() const { return counts_->is_by_counts; }
  // Of a dispatch by counts: [local experts].
  std::vector<std::int64_t> given_counts(const Plan& plan) const {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(plan.local_experts()));
    const std::uint32_t* word = words_ + given_counts_at(plan);
    for (std::int64_t& count : counts) {
      count = static_cast<std::int64_t>(word[0] | std::uint64_t{word[1]} << 32);
      word += 2;
    }
    return counts;
  }

 private:
  std::shared_ptr<PinnedMemory> memory_;
  HostCounts* counts_;
  std::uint32_t* words_;
  std::uint64_t question_ = 0;
};

}  // namespace ferry::cuda
