#include "exchange/checks/row_order_rules.h"

#include <fmt/format.h>

#include <array>

#include "exchange/checks/refuse.h"
#include "exchange/checks/tensor_checks.h"

namespace ferry {
namespace {

bool is_exact(const ExchangeOptions& o) { return o.reduction == Reduction::exact; }
bool has_shared_expert(const ExchangeOptions& o) { return o.fused_shared_expert; }

constexpr std::array<RowOrderRule, 3> kRules{{
    {.order = RowOrder::by_source,
     .option = "reduction exact",
     .is_on = is_exact,
     .at_exchange = true,
     .why = "a row of by_source is a sum over the experts of a rank, and exact sends the row of each expert home; with "
            "reduction either a combine of such rows is by_rank"},
    {.order = RowOrder::by_source,
     .option = "fused_shared_expert",
     .is_on = has_shared_expert,
     .at_exchange = true,
     .why = "the rows of the shared expert are a group of their own, and by_source has no groups"},
    {.order = RowOrder::in_place,
     .option = "fused_shared_expert",
     .is_on = has_shared_expert,
     .at_exchange = false,
     .why = "only by_expert and padded have a place for the rows of the shared expert"},
}};

}  // namespace

std::span<const RowOrderRule> row_order_rules() { return kRules; }

void require_valid_orders(const ExchangeOptions& options) {
  const auto refuse_options = [](const std::string& text) { throw Error(ErrorKind::invalid_argument, text); };
  if (options.row_orders.is_empty()) refuse_options("row_orders is empty; name one order or more");
  for (const RowOrderRule& rule : kRules)
    if (rule.at_exchange && options.row_orders.has(rule.order) && rule.is_on(options))
      refuse_options(fmt::format("row_orders has {}, which does not go with {}: {}", to_string(rule.order), rule.option,
                                 rule.why));
}

RowChoice check_row_order(const CheckContext& c, const DispatchInput& in) {
  if (!c.options.row_orders.has(in.row_order))
    refuse(c, "row_order is {}; this exchange was made for {} (ExchangeOptions::row_orders)", to_string(in.row_order),
           to_string(c.options.row_orders));
  for (const RowOrderRule& rule : kRules)
    if (rule.order == in.row_order && rule.is_on(c.options))
      refuse(c, "row_order is {}, which does not go with {}: {}", to_string(in.row_order), rule.option, rule.why);
  if (in.row_order != RowOrder::padded) {
    if (in.expert_stride != 0)
      refuse(c, "expert_stride is {}; rows of {} have no stride, only padded ones: leave it out", in.expert_stride,
             to_string(in.row_order));
    return {in.row_order, 0};
  }
  if (in.handle && in.expert_stride == 0) return {in.row_order, 0};
  const bool may_overflow = in.overflow != Overflow::refused;
  const std::int64_t shared_rows = has_shared_expert(c.options) ? c.shape.max_tokens : 1;  // group 0 holds all of them
  const std::int64_t least = may_overflow ? shared_rows : c.layout.expert_rows;
  const std::int64_t stride = in.expert_stride == 0 ? c.layout.expert_rows : in.expert_stride;
  if (stride < least)
    refuse(c, "expert_stride is {}; the limit is {} or more{}", stride, least,
           may_overflow ? "" : " (RowLayout::expert_rows): one expert can get all tokens, unless rows may overflow");
  if (stride > INT32_MAX / c.layout.groups)
    refuse(c, "expert_stride is {}; {} experts at this stride are more than the 2147483647 rows that there can be",
           stride, c.layout.groups);
  return {in.row_order, stride};
}

}  // namespace ferry
