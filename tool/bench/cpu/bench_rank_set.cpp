#include "tool/bench/cpu/bench_rank_set.h"

#include <fmt/core.h>

#include "tool/bench/base/bench_given.h"
#include "tool/io/memory.h"

namespace ferry::app {
namespace {

// Encoded before anything is measured.
void encode(RankSet& set, const BenchCase& bench, const RowLayout& layout) {
  const auto n = static_cast<std::size_t>(bench.shape.max_tokens);
  set.encoded = BenchBuffer(n * static_cast<std::size_t>(layout.payload_row_bytes));
  set.scales = BenchBuffer(n * static_cast<std::size_t>(layout.scales_per_row) * size_of(layout.scale_dtype));
  encode_tokens(bench, layout, set.tokens.data(), set.encoded.data(), set.scales.data());
  give_encoded(set.dispatch_in, layout, bench.shape.max_tokens, set.encoded.data(), set.scales.data());
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
  const std::int64_t rows = layout.least_rows(bench.rows);
  set.dispatch_in.row_order = bench.rows;
  for (const TensorSpec& spec : dispatch_outputs(layout, rows, bench.rows))
    set.dispatch_out.*spec.field = {set.arrived.emplace_back(spec.bytes()).data(), spec.dtype, spec.shape};
  const auto result_bytes = static_cast<std::size_t>(rows) * static_cast<std::size_t>(hidden) * 2;
  set.results = BenchBuffer(result_bytes);
  const ConstTensor weights(set.routing.weights.data(), DType::f32, {n, bench.shape.top_k});
  set.dispatch_in.tokens = ConstTensor(set.tokens.data(), DType::bf16, {n, hidden});
  if (bench.encoded) encode(set, bench, layout);
  if (bench.replays) {
    set.handle = BenchBuffer(static_cast<std::size_t>(layout.handle_bytes));
    set.dispatch_out.handle = Tensor(set.handle.data(), DType::u8, {layout.handle_bytes});
  }
  set.dispatch_in.topk_ids = ConstTensor(set.routing.ids.data(), DType::i32, {n, bench.shape.top_k});
  set.combine_in.rows = ConstTensor(set.results.data(), DType::bf16, {rows, hidden});
  set.combine_in.src_info = set.dispatch_out.src_info;
  if (bench.chooses) set.combine_in.reduction = bench.reduction;
  (bench.reduction == Reduction::exact ? set.combine_in.topk_weights : set.dispatch_in.topk_weights) = weights;
  set.combine_out.tokens = Tensor(set.output.data(), DType::bf16, {n, hidden});
}

// Only rows that came, so that memory which no round uses is never touched.
static void fill_results(RankSet& set, const RowLayout& layout, int hidden) {
  const std::size_t row_bytes = static_cast<std::size_t>(hidden) * 2;
  const DispatchOutput& out = set.dispatch_out;
  const auto* offsets = (out.source_offsets ? out.source_offsets : out.row_offsets).as<std::uint32_t>();
  if (set.dispatch_in.row_order != RowOrder::padded) {
    const std::size_t rows = offsets[out.source_offsets ? layout.sources : layout.groups];
    return fill_bf16(set.results.data(), rows * row_bytes, 7);
  }
  for (int group = 0; group < layout.groups; ++group)
    fill_bf16(set.results.data() + offsets[group] * row_bytes,
              static_cast<std::size_t>(out.counts.as<std::int32_t>()[group]) * row_bytes, 7);
}

void first_rounds(Exchange& exchange, std::vector<RankSet>& sets, const BenchCase& bench) {
  for (RankSet& set : sets) {
    exchange.dispatch(set.dispatch_in, set.dispatch_out);
    fill_results(set, exchange.layout(), bench.shape.hidden);
    exchange.combine(set.combine_in, set.combine_out);
    if (bench.replays) give_handle(set.dispatch_in, set.dispatch_out, set.combine_in);
  }
}

void require_memory(const BenchCase& bench, double needed) {
  const auto available = static_cast<double>(memory_left());
  if (needed > 0.9 * available)
    throw Error(ErrorKind::system,
                fmt::format("the benchmark of {} needs {:.1f} GB of memory, but {:.1f} GB are available: "
                            "choose fewer tokens or ranks",
                            to_string(bench.shape), needed / 1e9, available / 1e9));
}

}  // namespace ferry::app
