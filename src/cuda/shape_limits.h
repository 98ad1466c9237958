// What GPU ranks ask of a shape beyond what every backend does: arithmetic on it, before any memory is taken.
#pragma once

#include "cuda/refuse.h"
#include "cuda/round_tag.h"
#include "ferry/shape.h"

namespace ferry::cuda {

// I19: counts of tokens stand beside their round in one word.
inline void require_countable_tokens(const Shape& shape, int rank) {
  if (static_cast<std::int64_t>(shape.max_tokens) > std::int64_t{RoundTag::kLargestValue})
    refuse(ErrorKind::unsupported, rank, "{}: on GPUs a rank has at most {} tokens. Make max_tokens smaller",
           to_string(shape), RoundTag::kLargestValue);
}

}  // namespace ferry::cuda
