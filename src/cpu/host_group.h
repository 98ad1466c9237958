// HostGroup: one CPU thread, with the fast copies and sums of this machine.
#pragma once

#include <cstddef>

#include "ferry/thread_group.h"
#include "shared/copy.h"
#include "shared/row_sum.h"

namespace ferry::cpu {

struct HostGroup : SerialGroup {
  constexpr HostGroup() = default;
  constexpr HostGroup(const SerialGroup&) {}  // a fabric's calls take either
};
static_assert(ThreadGroup<HostGroup>);

// The same bytes as ferry::sum_rows, vectorised for this machine.
void sum_rows(const HostGroup& g, const SumRow* rows, int count, int hidden, const RowSink& sink);
void convert_row(const HostGroup& g, const SumRow& row, int hidden, std::byte* to, DType dtype);

}  // namespace ferry::cpu
