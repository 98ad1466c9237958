// Combine, the last step: the source of a token sums the token's results. All backends run this text.
//
// by_rank: the partial sum of expert rank d for token t lies in slot [t][j], j = how many smaller ranks t names.
// exact: row (t, k) lies in slot [t][k]. Packed results (PackedSlots) lie where their numbers say.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/protocol/step.h"

namespace ferry {

// Where the sum of a token goes.
template <Fabric F>
FERRY_HD RowSink sink_of(const F& fabric, const CombineOut& out, int token) {
  RowSink sink;
  sink.data = out.tokens + token * out.token_bytes;
  sink.dtype = out.dtype;
  sink.token = token;
  fabric.hooks().set_epilogue(out, sink);
  return sink;
}

// Relies on I7: await_results came before. The fixed order: bias first, then the results in the order of the lookup,
// the shared row last.
template <ResultStep S>
FERRY_HD void sum_token(const S& step, const RowStarts& starts, const CombineArgs& in, const CombineOut& out, int token,
                        TokenScratch& scratch) {
  const Plan& plan = step.plan;
  const TokenResults& results = scratch.results;
  const auto& writers = step.lookup.sync_unit(step.group);
  FERRY_NO_UNROLL
  for (int i = writers.thread(); i < in.num_bias; i += writers.size()) scratch.rows[i] = in.bias_row(i, token);
  FERRY_NO_UNROLL
  for (int i = writers.thread(); i < results.count; i += writers.size()) {
    const float weight = plan.exact ? step.fabric.hooks().router_weight(in.weights, token, results.k[i]) : 1.0f;
    const std::byte* result = step.fabric.local(plan.map.result(token, results.index[i]));
    scratch.rows[in.num_bias + i] = step.ops.result_row(step.group, result, plan.shape.hidden, i, weight);
  }
  int count = in.num_bias + results.count;
  if (token >= in.shared_begin && token < in.shared_end) {
    if (writers.thread() == 0)
      scratch.rows[count] = in.row(starts.group[0] + static_cast<std::uint32_t>(token - in.shared_begin), 1.0f);
    ++count;
  }
  step.group.sync();
  step.ops.sum_rows(step.group, scratch.rows, count, plan.shape.hidden, sink_of(step.fabric, out, token));
}

template <ResultStep S>
FERRY_HD void copy_unreduced(const S& step, const CombineOut& out, int token, const TokenResults& results) {
  const Plan& plan = step.plan;
  const std::size_t row_bytes = static_cast<std::size_t>(plan.shape.hidden) * size_of(out.dtype);
  std::byte* to = out.tokens + token * out.token_bytes;
  int next = 0;
  for (int k = 0; k < plan.shape.top_k; ++k, to += row_bytes) {
    if (next < results.count && results.k[next] == k) {
      const std::byte* result = step.fabric.local(plan.map.result(token, results.index[next]));
      const SumRow row = step.ops.result_row(step.group, result, plan.shape.hidden, 0, 1.0f);
      step.ops.convert_row(step.group, row, plan.shape.hidden, to, out.dtype);
      ++next;
    } else {
      ferry::fill_zero(step.group, to, row_bytes);
    }
  }
}

// Writes the sum, or the unreduced rows, of a token whose results have arrived.
template <ResultStep S>
FERRY_HD void reduce_token(const S& step, const RowStarts& starts, const CombineArgs& in, const CombineOut& out,
                           int token, TokenScratch& scratch) {
  if (out.unreduced)
    copy_unreduced(step, out, token, scratch.results);
  else
    sum_token(step, starts, in, out, token, scratch);
  step.group.sync();
}

}  // namespace ferry
