#include "exchange/plan.h"

#include "exchange/sizes.h"

namespace ferry {

Plan make_plan(const Shape& shape, const ExchangeOptions& options, const HeapMap& map, int rank) {
  Plan plan;
  plan.set_shape(protocol_shape(shape, options, rank));
  plan.map = map;
  plan.code = {id_bits(plan.shape.experts)};
  plan.rank = options.skip_a2a ? 0 : rank;
  plan.id_base = options.skip_a2a ? first_expert(shape, rank) : 0;
  plan.exact = options.reduction == Reduction::exact;
  plan.shared_groups = options.fused_shared_expert ? 1 : 0;
  plan.alignment = row_layout(shape, options, rank).alignment;
  return plan;
}

}  // namespace ferry
