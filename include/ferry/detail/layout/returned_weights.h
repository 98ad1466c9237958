// ReturnedWeights: the weights that come home with one result (ExchangeOptions::returns_weights), in a slot of their
// own.
#pragma once

#include <cstdint>

#include "ferry/formats/portable.h"
#include "ferry/shape.h"

namespace ferry {

// A slot is as long as its values need (HeapMap::returned_bytes).
struct alignas(16) ReturnedWeights {
  std::uint32_t of_k = 0;      // bit k: there is a value for the token's k; exact: bit 0
  float value[kMaxTopK] = {};  // exact: only the first
};

}  // namespace ferry
