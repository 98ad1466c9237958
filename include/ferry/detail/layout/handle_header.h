// HandleHeader: the first bytes of a handle, which say whose routing it holds. protocol/handle.h has what follows.
#pragma once

#include <cstdint>

#include "ferry/detail/base/order.h"
#include "ferry/portable.h"

namespace ferry {

inline constexpr std::uint64_t kHandleMagic = 0x31656C646E614846ull;  // "FHandle1"

struct HandleHeader {
  std::uint64_t magic = kHandleMagic;
  Epoch routing = 0;         // number of its routing, in the exchange that made it
  std::int32_t ranks = 0;    // of the caller's shape, as are these
  std::int32_t experts = 0;  //
  std::int32_t top_k = 0;    //
  std::int32_t max_tokens = 0;
  std::int32_t rank = 0;           // whose handle it is
  std::int32_t skips_a2a = 0;      // options of the exchange that made it
  std::int32_t shared_groups = 0;  //
  std::int32_t order = 0;          // of its rows; 0: by expert
  std::int32_t alignment = 1;      // of an expert's first row
  std::int32_t num_tokens = 0;     // n
  std::uint32_t num_rows = 0;      // row_offsets[groups]
  std::int32_t shared_begin = 0;   // own tokens in the fused shared expert's group
  std::int32_t shared_end = 0;     //
  std::int32_t reserved[15] = {};
};
static_assert(sizeof(HandleHeader) == 128);

// A row of a token at this rank.
struct HandleRow {
  std::uint32_t row;  // kNoRow: the expert is not of this rank
  float weight;
};
inline constexpr std::uint32_t kNoRow = 0xFFFFFFFFu;

// Results of one source that lie before this rank's where they are packed (I9), by reduction.
struct ResultsBefore {
  std::uint32_t by_rank;
  std::uint32_t exact;
};

}  // namespace ferry
