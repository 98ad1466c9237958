// The operations on rows, which also store the scales where the caller asked for them (DispatchOutput::row_scales).
#pragma once

#include "cpu/rows/host_ops.h"
#include "ferry/detail/protocol/padded_rows.h"
#include "ferry/detail/protocol/row_scales.h"

namespace ferry::cpu {

// `to` may have no memory.
template <class O>
struct RowScaleOps : O {
  RowScales to;

  void store_scales(const HostGroup& g, const ScaleTensor& tensor, const std::byte* scales, const RowStarts& starts,
                    int shared_groups, const LocalRows& rows) const {
    if (tensor.layout != ScaleLayout::none) O::store_scales(g, tensor, scales, starts, shared_groups, rows);
    for (int i = 0; to.data != nullptr && i < rows.count; ++i)
      put_row_scales(SerialGroup{}, to, std::int64_t{rows.row[i]}, scales);
  }
};
static_assert(RowOps<RowScaleOps<HostOps>, HostGroup> && RowOps<RowScaleOps<PaddedOps<HostOps>>, HostGroup>);

}  // namespace ferry::cpu
