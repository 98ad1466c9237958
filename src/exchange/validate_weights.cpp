// Checks of the weights that go with a combine. Nothing has moved yet (I17).
#include <fmt/format.h>

#include "exchange/tensor_checks.h"

namespace ferry {

void check_late_weights(const CheckContext& c, const CombineInput& in, const Ticket& ticket) {
  if (c.options.reduction == Reduction::exact || (!in.topk_weights && in.router_weight == nullptr)) return;
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

}  // namespace ferry
