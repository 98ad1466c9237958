#include "tool/layer/base/layer_plan.h"

#include <fmt/core.h>

#include <algorithm>

#include "tool/ranks/shape_names.h"

namespace ferry::app {

std::int64_t Layer::id(std::int64_t token, int k) const {
  const std::int64_t index = token * top_k + k;
  return ids.dtype == DType::i32 ? static_cast<const std::int32_t*>(ids.data)[index]
                                 : static_cast<const std::int64_t*>(ids.data)[index];
}

ExpertWeights Layer::expert(int index) const {
  const std::int64_t half = static_cast<std::int64_t>(inter) * hidden;
  return {gate_up + 2 * half * index, down + half * index, inter};
}

TokenSpan tokens_of_rank(std::int64_t tokens, int ranks, int rank) {
  const std::int64_t more = tokens % ranks;
  return {rank * (tokens / ranks) + std::min<std::int64_t>(rank, more), tokens / ranks + (rank < more ? 1 : 0)};
}

LayerPlan plan_layer(const Layer& layer, const LayerOptions& options) {
  const std::int64_t most = std::max<std::int64_t>(1, tokens_of_rank(layer.tokens, options.ranks, 0).count);
  LayerPlan plan;
  plan.rounds = options.one_round ? 1 : (most + kMostTokensPerRound - 1) / kMostTokensPerRound;
  const std::int64_t per_round = (most + plan.rounds - 1) / plan.rounds;  // rounds of like size
  if (per_round > std::int64_t{1} << 30)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} tokens for a rank in one round: must be at most {}", per_round, 1 << 30));
  plan.shape = {options.ranks, layer.experts, layer.top_k, static_cast<int>(per_round), layer.hidden};
  require_shape(plan.shape,
                {.top_k = "K of --topk-ids,",
                 .tokens = options.one_round ? "tokens of a rank in one round (--dump)," : "tokens of a rank,",
                 .hidden = "columns of --tokens,",
                 .experts_are = "of --gate-up"});
  plan.exchange.format = options.format;
  plan.exchange.reduction = options.chooses ? Reduction::either : options.reduction;
  plan.exchange.message_copies = options.message_copies;
  plan.exchange.result_format = options.results;
  plan.exchange.row_orders = {options.rows};
  plan.exchange.fused_shared_expert = layer.shared_inter != 0;
  plan.exchange.deadline = plan.exchange.set_up_deadline = options.deadline;
  require_rows_fit(plan.exchange, options.reduction);
  memory_use(plan.shape, plan.exchange);  // throws where these do not fit together
  return plan;
}

}  // namespace ferry::app
