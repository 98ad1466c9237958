// Limits of a shape that only GPU ranks have. They are checked before any memory is allocated.
#pragma once

#include "cuda/device/refuse.h"
#include "ferry/detail/cuda/state/round_tag.h"
#include "ferry/shape.h"

namespace ferry::cuda {

// I19: one word has a count of tokens and its round.
inline void require_countable_tokens(const Shape& shape, int rank) {
  if (static_cast<std::int64_t>(shape.max_tokens) > std::int64_t{RoundTag::kMostTokens})
    refuse(ErrorKind::unsupported, rank, "{}: on GPUs a rank has at most {} tokens. Make max_tokens smaller",
           to_string(shape), RoundTag::kMostTokens);
}

// Entries of all tables are counted by 32 bits (remote_fabric.cuh); so many take 32 GiB.
inline void require_countable_entries(const Shape& shape, int rank) {
  const std::int64_t tokens = std::int64_t{2} * shape.ranks * shape.max_tokens;
  if (tokens > std::int64_t{UINT32_MAX} / shape.top_k)
    refuse(ErrorKind::unsupported, rank,
           "{}: on GPUs routing tables have at most {} entries (2 * ranks * max_tokens * top_k). "
           "Make max_tokens smaller",
           to_string(shape), UINT32_MAX);
}

}  // namespace ferry::cuda
