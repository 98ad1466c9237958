// The outputs of a dispatch in each order of rows, all in one piece of memory: a round has one order.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "ferry/dispatch_output.h"
#include "gpu/stress/stress_kernels.h"
#include "gpu/stress/stress_memory.h"

namespace ferry::stress {

class Outputs {
 public:
  Outputs(Arena& arena, const RowLayout& layout, RowOrders orders) : arena_(arena), layout_(layout) {
    std::size_t most = 0;
    for (int order = 0; order < kRowOrders; ++order) {
      if (!orders.has(static_cast<RowOrder>(order))) continue;
      Order& mine = orders_[static_cast<std::size_t>(order)];
      const auto of = static_cast<RowOrder>(order);
      mine.specs = dispatch_outputs(layout, layout.least_rows(of), of);
      std::size_t end = 0;
      for (const TensorSpec& spec : mine.specs) {
        mine.places.push_back(end);
        end += (spec.bytes() + 511) / 256 * 256;
      }
      mine.bytes = end;
      most = std::max(most, end);
    }
    begin_ = arena.plan(1, most);
    if (!orders.has(RowOrder::in_place)) return;
    gathered_payload_ = arena.plan(layout.min_row_capacity, static_cast<std::size_t>(layout.payload_row_bytes));
    gathered_scales_ = arena.plan(layout.min_row_capacity * layout.scales_per_row, size_of(layout.scale_dtype));
  }

  std::int64_t rows(RowOrder order) const { return layout_.least_rows(order); }

  DispatchOutput of(RowOrder order) const {
    DispatchOutput out;
    const Order& mine = at(order);
    for (std::size_t i = 0; i < mine.specs.size(); ++i)
      out.*mine.specs[i].field = {memory(mine, i), mine.specs[i].dtype, std::span(mine.specs[i].shape)};
    return out;
  }
  // Sets every byte.
  void poison(RowOrder order, std::uint8_t byte) const {
    check(cudaMemsetAsync(arena_.at<void>(begin_), byte, at(order).bytes, arena_.stream()), "cudaMemsetAsync");
  }
  Rows written(RowOrder order, std::uint8_t poison) const {
    const DispatchOutput out = of(order);
    Rows rows{};
    rows.order = order;
    rows.payload = out.payload.as<std::uint8_t>();
    rows.scales = out.scales.as<std::uint8_t>();
    rows.row_offsets = out.row_offsets.as<unsigned>();
    rows.expert_ids = out.expert_ids.as<int>();
    rows.src_info = out.src_info.as<int>();
    rows.scales_offsets = out.scales_offsets.as<unsigned>();
    rows.counts = out.counts.as<int>();
    rows.row_topk_ids = out.row_topk_ids.as<int>();
    rows.row_topk_weights = out.row_topk_weights.as<float>();
    rows.source_offsets = out.source_offsets.as<unsigned>();
    rows.gather = out.gather.as<int>();
    rows.capacity = layout_.least_rows(order);
    rows.poison = poison;
    if (order != RowOrder::in_place) return rows;
    rows.payload = arena_.at<std::uint8_t>(gathered_payload_);
    rows.scales = arena_.at<std::uint8_t>(gathered_scales_);
    return rows;
  }

 private:
  struct Order {
    std::vector<TensorSpec> specs;
    std::vector<std::size_t> places;
    std::size_t bytes = 0;
  };
  const Order& at(RowOrder order) const { return orders_[static_cast<std::size_t>(order)]; }
  void* memory(const Order& order, std::size_t index) const { return arena_.at<void>(begin_ + order.places[index]); }

  Arena& arena_;
  RowLayout layout_;
  std::array<Order, kRowOrders> orders_;
  std::size_t begin_ = 0, gathered_payload_ = 0, gathered_scales_ = 0;
};

}  // namespace ferry::stress
