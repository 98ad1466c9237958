// What the caller of a measured dispatch may give in place of bf16 tokens and ids.
#pragma once

#include <cstddef>

#include "ferry/exchange.h"
#include "tool/bench/base/bench_case.h"

namespace ferry::app {

// The tokens of a rank, bf16 [n, hidden], in the format of the line, as DispatchInput takes them: `payload` has room
// for n rows of a payload, `scales` for n rows of scales.
void encode_tokens(const BenchCase& bench, const RowLayout& layout, const std::byte* bf16, std::byte* payload,
                   std::byte* scales);
// Makes `in` give these. On GPUs both lie in device memory.
void give_encoded(DispatchInput& in, const RowLayout& layout, std::int64_t n, const std::byte* payload,
                  const std::byte* scales);

// From now on the dispatch repeats the routing of the one that filled out.handle, and its combine goes by it.
void give_handle(DispatchInput& in, DispatchOutput& out, CombineInput& rows);

}  // namespace ferry::app
