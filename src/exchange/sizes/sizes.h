// Sizes that follow from a shape and its options: the protocol's view of the shape, and the heap map.
#pragma once

#include <vector>

#include "base/deadline.h"
#include "ferry/detail/layout/heap_map.h"
#include "ferry/exchange.h"

namespace ferry {

// The deadline of each wait while an exchange is made.
std::chrono::milliseconds set_up_deadline(const ExchangeOptions& options);

inline int num_formats(const ExchangeOptions& options) { return 1 + static_cast<int>(options.more_formats.size()); }

// The part of the world that the protocol sees: all of it, or in skip_a2a mode one rank with its experts.
struct LocalView {
  Shape shape;
  int rank = 0;      // in `shape`
  int first_id = 0;  // the caller's id of the first expert of `shape`
};
LocalView local_view(const Shape& shape, const ExchangeOptions& options, int rank);

// Payload and scales of a row.
std::uint64_t row_bytes(const RowLayout& layout, const AnyFormat& format);

// The same in each format of the exchange.
std::vector<std::uint64_t> row_bytes_in(const Shape& shape, const ExchangeOptions& options, int rank);

// Where the global scale of a token lies in its message; 0: it has none (ExchangeOptions::dynamic_scales).
std::size_t global_scale_at(const ExchangeOptions& options, int hidden);
// Whether tokens are encoded by DispatchInput::input_scale.
bool uses_input_scale(const ExchangeOptions& options);

// For dispatches in the exchange's own format. The offsets are the same for all of them.
HeapMap make_heap_map(const Shape& shape, const ExchangeOptions& options, int rank, bool has_remote_ranks);

// Own tokens [begin, end) of n that a rank's fused shared expert takes: all, or in skip_a2a mode an even part.
struct TokenRange {
  int begin;
  int end;
};
TokenRange shared_tokens(const ExchangeOptions& options, int rank, int num_tokens);

}  // namespace ferry
