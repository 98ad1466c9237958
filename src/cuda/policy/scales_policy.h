// Whether a kernel of its own follows a dispatch and stores the scales of its rows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/policy/problem.h"

namespace ferry::cuda {

// The scales kernel takes time of its own, so it follows only where
//   - each of `blocks` thread blocks has kMinScaleWords words to store, and
//   - stores of single words would hold the dispatch up: blocks are few, or the links do not hide these stores, since a
//     message has fewer than kBytesHidingScaleWord bytes for each word of its rows.
// It finds a row's message by its src_info, and knows rows by_expert.
// log: The scales kernel; cuda_2xh200.jsonl:96-119, cuda_4xh200.jsonl:56-81
inline constexpr int kMinScaleWords = 3000;
inline constexpr int kBytesHidingScaleWord = 42;
constexpr bool stores_scales_last(const DeviceLimits& limits, const Problem& problem, int blocks) {
  const std::int64_t rows = std::int64_t{problem.num_tokens} * problem.top_k;
  if (!problem.receives || problem.order != RowOrder::by_expert) return false;
  if (rows * problem.scale_words < std::int64_t{kMinScaleWords} * blocks) return false;
  const std::int64_t hiding = std::int64_t{problem.top_k} * problem.scale_words * kBytesHidingScaleWord;
  return blocks < limits.multiprocessors ||
         hiding >= std::int64_t{std::min(problem.ranks, problem.top_k)} * problem.message_bytes;
}

}  // namespace ferry::cuda
