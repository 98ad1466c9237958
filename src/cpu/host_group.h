// HostGroup: one CPU thread, with the fast copies and sums of this machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/base/copy.h"
#include "ferry/detail/formats/row_sum.h"
#include "ferry/detail/layout/scale_layout.h"
#include "ferry/thread_group.h"

namespace ferry::cpu {

struct HostGroup : SerialGroup {
  constexpr HostGroup() = default;
  constexpr HostGroup(const SerialGroup&) {}  // a fabric's calls take either

  // Rows, messages and sums go to memory past the cache: for more of them than it keeps. Then finish_stores() must come
  // between them and the release that publishes them.
  bool nontemporal = false;
};
static_assert(ThreadGroup<HostGroup>);

// The same bytes as ferry::sum_rows, vectorised for this machine.
void sum_rows(const HostGroup& g, const SumRow* rows, int count, int hidden, const RowSink& sink);
void convert_row(const HostGroup& g, const SumRow& row, int hidden, std::byte* to, DType dtype);

void copy_message(const HostGroup& g, std::byte* to, const std::byte* from, std::size_t bytes);
void copy_to_rows(const HostGroup& g, std::byte* rows, std::size_t row_bytes, const std::uint32_t* row, int count,
                  const std::byte* from, std::size_t bytes);

// The same bytes as ferry::store_scales, in runs that lie together.
void store_scales(const HostGroup& g, const ScalePlace& place, const std::byte* scales, const ScaleRow& at);

// As ferry::zero_scale_tail, but zeroes the whole last block of 128 rows at once: it must come before the group's rows.
void zero_scale_tail(const HostGroup& g, const ScalePlace& place, std::int64_t first_row, std::int64_t end_row,
                     std::uint32_t scales_offset);

// Stores past the cache are not ordered by a release alone; this orders them.
void finish_stores(const HostGroup& g);

}  // namespace ferry::cpu
