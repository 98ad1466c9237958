#include "exchange/sizes/plan.h"

#include "exchange/sizes/sizes.h"

namespace ferry {

Plan make_plan(const Shape& shape, const ExchangeOptions& options, const HeapMap& map, int rank) {
  const LocalView view = local_view(shape, options, rank);
  Plan plan;
  plan.set_shape(view.shape);
  plan.map = map;
  plan.code = {id_bits(plan.shape.experts)};
  plan.rank = view.rank;
  plan.first_id = view.first_id;
  plan.exact = options.reduction == Reduction::exact;
  plan.shared_groups = options.fused_shared_expert ? 1 : 0;
  plan.alignment = row_layout(shape, options, rank).alignment;
  return plan;
}

}  // namespace ferry
