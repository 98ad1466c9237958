#include "tool/bench/cpu/bench_rank_set.h"

#include <fmt/core.h>

namespace ferry::app {
namespace {

Tensor scales_tensor(const RowLayout& layout, std::byte* memory) {
  Tensor tensor;
  const std::vector<std::int64_t> extents = layout.scales_shape(layout.min_row_capacity);
  tensor.data = memory;
  tensor.dtype = layout.scale_dtype;
  tensor.rank = static_cast<int>(extents.size());
  std::int64_t stride = 1;
  for (std::size_t axis = extents.size(); axis-- > 0;) {
    tensor.shape[axis] = extents[axis];
    tensor.strides[axis] = stride;
    stride *= extents[axis];
  }
  return tensor;
}

void make_dispatch_output(RankSet& set, const RowLayout& layout, int hidden) {
  const std::int64_t rows = layout.min_row_capacity;
  const auto groups = static_cast<std::size_t>(layout.groups);
  set.payload = BenchBuffer(static_cast<std::size_t>(rows * layout.payload_row_bytes));
  set.row_offsets.resize(groups + 1);
  set.expert_ids.resize(groups);
  set.src_info.resize(static_cast<std::size_t>(rows) * 2);
  DispatchOutput& out = set.dispatch_out;
  out.payload = layout.scale_layout == ScaleLayout::none
                    ? Tensor(set.payload.data(), DType::bf16, {rows, hidden})
                    : Tensor(set.payload.data(), DType::u8, {rows, layout.payload_row_bytes});
  out.row_offsets = Tensor(set.row_offsets.data(), DType::u32, {layout.groups + 1});
  out.expert_ids = Tensor(set.expert_ids.data(), DType::i32, {layout.groups});
  out.src_info = Tensor(set.src_info.data(), DType::i32, {rows, 2});
  if (layout.scale_layout == ScaleLayout::none) return;
  const Tensor sized = scales_tensor(layout, nullptr);
  set.scales = BenchBuffer(static_cast<std::size_t>(sized.elements()) * size_of(sized.dtype));
  out.scales = scales_tensor(layout, set.scales.data());
  if (layout.scale_layout != ScaleLayout::tiled) return;
  set.scales_offsets.resize(groups);
  out.scales_offsets = Tensor(set.scales_offsets.data(), DType::u32, {layout.groups});
}

}  // namespace

void make_set(RankSet& set, const BenchCase& bench, const RowLayout& layout, int rank, int index) {
  const std::int64_t n = bench.shape.max_tokens;
  const int hidden = bench.shape.hidden;
  const std::size_t token_bytes = static_cast<std::size_t>(n) * static_cast<std::size_t>(hidden) * 2;
  set.routing = make_routing(bench, rank, index);
  set.tokens = BenchBuffer(token_bytes);
  fill_bf16(set.tokens.data(), token_bytes,
            static_cast<std::uint64_t>(rank) * 1000 + static_cast<std::uint64_t>(index) + 1);
  set.output = BenchBuffer(token_bytes);
  make_dispatch_output(set, layout, hidden);
  const auto result_bytes = static_cast<std::size_t>(layout.min_row_capacity) * static_cast<std::size_t>(hidden) * 2;
  set.results = BenchBuffer(result_bytes);
  const ConstTensor weights(set.routing.weights.data(), DType::f32, {n, bench.shape.top_k});
  set.dispatch_in.tokens = ConstTensor(set.tokens.data(), DType::bf16, {n, hidden});
  set.dispatch_in.topk_ids = ConstTensor(set.routing.ids.data(), DType::i32, {n, bench.shape.top_k});
  set.combine_in.rows = ConstTensor(set.results.data(), DType::bf16, {layout.min_row_capacity, hidden});
  set.combine_in.src_info = set.dispatch_out.src_info;
  (bench.reduction == Reduction::exact ? set.combine_in.topk_weights : set.dispatch_in.topk_weights) = weights;
  set.combine_out.tokens = Tensor(set.output.data(), DType::bf16, {n, hidden});
}

void first_rounds(Exchange& exchange, std::vector<RankSet>& sets, int hidden) {
  for (RankSet& set : sets) {
    exchange.dispatch(set.dispatch_in, set.dispatch_out);
    fill_bf16(set.results.data(), std::size_t{set.row_offsets.back()} * static_cast<std::size_t>(hidden) * 2, 7);
    exchange.combine(set.combine_in, set.combine_out);
  }
}

void require_memory(const BenchCase& bench, double needed) {
  const auto available = static_cast<double>(available_memory());
  if (available > 0 && needed > 0.9 * available)
    throw Error(ErrorKind::system,
                fmt::format("the benchmark of {} needs {:.1f} GB of memory, but {:.1f} GB are available: "
                            "choose fewer tokens or ranks",
                            to_string(bench.shape), needed / 1e9, available / 1e9));
}

}  // namespace ferry::app
