// Checks of what goes with a combine besides rows and sums: weights, waiting times. Nothing has moved yet (I17).
#include <fmt/format.h>

#include <algorithm>

#include "exchange/checks/tensor_checks.h"
#include "ferry/detail/layout/call_word.h"

namespace ferry {

void take_reduction(const CheckContext& c, const CombineArgs& args, Ticket& ticket) {
  if (args.exact && ticket.rows.order == RowOrder::by_source)
    refuse_call(c,
                "reduction is exact, and the rows are by_source: they are sums over the experts of a rank. Give rows "
                "by_source to a combine by_rank");
  if (args.exact && c.options.reduction == Reduction::either) ticket.mark ^= kMarkOfExact;
}

void check_late_weights(const CheckContext& c, const CombineInput& in, const CombineArgs& args, const Ticket& ticket) {
  if (args.exact || (!in.topk_weights && in.router_weight == nullptr)) return;
  const char* name = in.topk_weights ? "topk_weights" : "router_weight";
  if (!in.apply_weights)
    refuse_call(
        c, fmt::format("{} is given, and apply_weights is false: nobody would multiply by it. Leave one out", name));
  if (ticket.rows.order == RowOrder::by_source)
    refuse_call(c,
                fmt::format("{} is given; rows of by_source are sums of the caller's, which nobody multiplies. Leave "
                            "it out",
                            name));
  if (ticket.has_weights)
    refuse_call(c, fmt::format("{} is given to combine, and weights were given to its dispatch. Give them once", name));
}

void check_row_weights(const CheckContext& c, const CombineInput& in, const Ticket& ticket, std::uint32_t num_rows,
                       CombineArgs& args) {
  const char* name = "row_topk_weights";
  if (!in.row_topk_weights) return;
  if (!c.options.returns_weights)
    refuse_call(c, fmt::format("{} is given; this exchange sends no weights home: make it with returns_weights", name));
  const bool knows_order = ticket.num_tokens >= 0;  // else the handle lies on a device
  args.has_row_weights_of_k = knows_order ? ticket.rows.order == RowOrder::by_source : in.row_topk_weights.rank == 2;
  if (args.has_row_weights_of_k)
    require_array(c, name, in.row_topk_weights, {DType::f32}, {-1, c.shape.top_k});
  else
    require_array(c, name, in.row_topk_weights, {DType::f32}, {-1});
  if (args.has_row_weights_of_k && !c.options.row_orders.has(RowOrder::by_source))
    refuse_call(c,
                fmt::format("{} is {}; only rows by_source have K values each, and this exchange has none: give [rows]",
                            name, to_string(in.row_topk_weights)));
  if (in.row_topk_weights.shape[0] < num_rows)
    refuse_call(c,
                fmt::format("{} has {} rows; the dispatch laid out {}", name, in.row_topk_weights.shape[0], num_rows));
  args.row_weights = static_cast<const float*>(in.row_topk_weights.data);
  args.num_row_weights = static_cast<std::uint32_t>(std::min<std::int64_t>(in.row_topk_weights.shape[0], UINT32_MAX));
}

float* check_returned_weights(const CheckContext& c, const CombineOutput& out, int num_tokens) {
  if (out.topk_weights.rank == 0) return nullptr;
  if (!c.options.returns_weights)
    refuse_call(c, "topk_weights is asked for; no weights come home to this exchange: make it with returns_weights");
  require_array(c, "topk_weights", or_empty(out.topk_weights), {DType::f32}, {num_tokens, c.shape.top_k});
  return static_cast<float*>(out.topk_weights.data);
}

std::int64_t* check_combine_waits(const CheckContext& c, const CombineOutput& out) {
  if (out.waited_ns.rank == 0) return nullptr;
  require_array(c, "waited_ns", or_empty(out.waited_ns), {DType::i64}, {c.layout.sources});
  return static_cast<std::int64_t*>(out.waited_ns.data);
}

}  // namespace ferry
