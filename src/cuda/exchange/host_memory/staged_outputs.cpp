// StagedSteps: the outputs of a dispatch that may be left out, and the slots of rows in_place.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "cuda/exchange/host_memory/staged_steps.h"
#include "ferry/detail/cuda/state/cuda_check.h"

namespace ferry::cuda {
namespace {

using Shape64 = std::initializer_list<std::int64_t>;

// Calls visit(kind, the member of RowsOut, dtype, shape) for each of them that is an array.
template <class Visit>
void for_each_array(const RowsOut& rows, const RowLayout& layout, const Visit& visit) {
  const std::int64_t capacity = rows.row_capacity, groups = layout.groups, sources = layout.sources;
  visit(HostTensors::kSourceStarts, &RowsOut::source_starts, DType::i32, {groups, sources});
  visit(HostTensors::kRowWeights, &RowsOut::row_weights, DType::f32, {capacity});
  visit(HostTensors::kRowSources, &RowsOut::row_sources, DType::i32, {capacity});
  visit(HostTensors::kMessages, &RowsOut::messages, DType::i32, {rows.message_capacity, 2 + layout.top_k});
  visit(HostTensors::kOverflow, &RowsOut::overflow, DType::i32, {1});
  visit(HostTensors::kCumulativeCounts, &RowsOut::cumulative_counts, DType::i32, {groups});
  visit(HostTensors::kWaitedNs, &RowsOut::waited_ns, DType::i64, {sources});
  visit(HostTensors::kGather, &RowsOut::gather, DType::i32, {capacity});
}

Tensor global_scales_of(const RowsOut& rows) {
  return {rows.global_scales.data, rows.global_scales.dtype, {rows.row_capacity}};
}

std::int64_t width_of(const RowScales& scales) {
  return scales.as == RowScales::As::they_are ? scales.scale_bytes : std::int64_t{4};
}
std::int64_t columns_of(const RowScales& scales) {
  return scales.as == RowScales::As::groups_of_four ? (scales.count + 3) / 4 : scales.count;
}
std::int64_t offset_of(const RowScales& scales, std::int64_t row, std::int64_t column) {
  const std::int64_t group = scales.group_rows == 0 ? 0 : row / scales.group_rows;
  return group * scales.group_stride + (row - group * scales.group_rows) * scales.row_stride +
         column * scales.column_stride;
}

std::int64_t rows_of(const RowScales& scales, const RowsOut& rows, int groups) {
  return scales.group_rows == 0 ? rows.row_capacity : scales.group_rows * groups;
}

// All bytes from the first element to the last.
Tensor extent_of(const RowScales& scales, std::int64_t rows) {
  if (rows == 0) return {scales.data, DType::u8, {0}};
  const std::int64_t last = offset_of(scales, rows - 1, columns_of(scales) - 1);
  return {scales.data, DType::u8, {last + width_of(scales)}};
}

}  // namespace

// The device has row_scales at the caller's strides, too.
void StagedSteps::stage_more(const RowsOut& rows, RowsOut& staged) {
  for_each_array(rows, layout_, [&](HostTensors::Kind kind, auto RowsOut::*field, DType dtype, Shape64 shape) {
    if (rows.*field == nullptr) return;
    const Tensor device = tensors_.copy_in(kind, ConstTensor(rows.*field, dtype, shape));
    staged.*field = static_cast<std::remove_reference_t<decltype(staged.*field)>>(device.data);
  });
  if (rows.global_scales.are_given())
    staged.global_scales = GlobalScales::of(tensors_.copy_in(HostTensors::kGlobalScales, global_scales_of(rows)));
  const RowScales& scales = rows.row_scales;
  if (scales.data == nullptr) return;
  const Tensor device =
      tensors_.copy_in(HostTensors::kRowScales, extent_of(scales, rows_of(scales, rows, layout_.groups)));
  staged.row_scales.data = static_cast<std::byte*>(device.data);
}

void StagedSteps::bring_more(const RowsOut& rows) {
  for_each_array(rows, layout_, [&](HostTensors::Kind kind, auto RowsOut::*field, DType dtype, Shape64 shape) {
    if (rows.*field != nullptr) tensors_.copy_out(kind, Tensor(rows.*field, dtype, shape));
  });
  if (rows.global_scales.are_given()) tensors_.copy_out(HostTensors::kGlobalScales, global_scales_of(rows));
  if (rows.row_scales.data != nullptr)
    bring_row_scales(rows.row_scales, rows_of(rows.row_scales, rows, layout_.groups));
}

// What lies in the gaps between them may be another thread's.
void StagedSteps::bring_row_scales(const RowScales& to, std::int64_t rows) {
  Tensor extent = extent_of(to, rows);
  std::vector<std::byte> came(static_cast<std::size_t>(extent.elements()));
  extent.data = came.data();
  tensors_.copy_out(HostTensors::kRowScales, extent);
  tensors_.wait();
  const auto width = static_cast<std::size_t>(width_of(to));
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns_of(to); ++column) {
      const std::int64_t at = offset_of(to, row, column);
      std::memcpy(to.data + at, came.data() + at, width);
    }
}

const std::byte* StagedSteps::arrival_slots() { return host_slots(); }

std::byte* StagedSteps::host_slots() {
  if (slots_ == nullptr) slots_ = std::make_unique<std::byte[]>(steps_->plan().map.region_bytes(HeapMap::kMessages));
  return slots_.get();
}

// The copy of the slots that `gather` names. Other ranks may write to the next copy meanwhile (I1).
void StagedSteps::bring_slots(const RowsOut& rows) {
  const HeapMap& map = steps_->plan().map;
  const std::int32_t *begin = rows.gather, *end = begin + num_rows_;
  const std::uint32_t slots_of_copy = map.message_slot(1, 0, 0);
  const std::uint32_t slots = slots_of_copy * static_cast<std::uint32_t>(map.message_copies());
  const auto* named =
      std::find_if(begin, end, [&](std::int32_t slot) { return static_cast<std::uint32_t>(slot) < slots; });
  if (named == end) return;  // no token came: all are -1
  const std::size_t bytes = slots_of_copy * map.message_slot_bytes();
  const std::size_t at = static_cast<std::uint32_t>(*named) / slots_of_copy * bytes;
  cuda_check(cudaMemcpyAsync(host_slots() + at, steps_->arrival_slots() + at, bytes, cudaMemcpyDeviceToHost,
                             tensors_.stream()),
             "cudaMemcpyAsync");
  tensors_.wait();
}

}  // namespace ferry::cuda
