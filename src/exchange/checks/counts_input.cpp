#include "exchange/checks/counts_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "exchange/checks/refuse.h"
#include "exchange/checks/tensor_checks.h"

namespace ferry {
namespace {

void check_beside(const CheckContext& c, const DispatchInput& in) {
  if (in.topk_ids) refuse(c, "topk_ids and in_rank are both given; in_rank stands in place of ids: give one");
  if (in.topk_weights || in.router_weight != nullptr)
    refuse(c, "weights are given with in_rank; without ids there is nothing that they are of: leave them out");
  if (in.handle) refuse(c, "in_rank and a handle are both given; a handle holds the routing: leave in_rank out");
  if (in.row_order != RowOrder::by_source)
    refuse(c, "row_order is {}; rows of a dispatch with in_rank are by_source", to_string(in.row_order));
  if (c.options.skip_a2a) refuse(c, "in_rank is given; with skip_a2a nothing is sent to other ranks: give topk_ids");
}

void check_counts(const CheckContext& c, const DispatchInput& in) {
  const auto* counts = in.expert_counts.as<std::int32_t>();
  for (int expert = 0; expert < c.shape.experts; ++expert)
    if (counts[expert] < 0) refuse(c, "expert_counts[{}] is {}; it must be 0 or more", expert, counts[expert]);
}

}  // namespace

void CountsInput::make_ids(const CheckContext& c, const DispatchInput& in, std::int64_t num_tokens) {
  const auto* goes_to = in.in_rank.as<std::uint8_t>();
  const int most = std::min(c.shape.ranks, c.shape.top_k);
  ids_.assign(static_cast<std::size_t>(num_tokens * c.shape.top_k), -1);
  for (std::int64_t token = 0; token < num_tokens; ++token) {
    int named = 0;
    for (int rank = 0; rank < c.shape.ranks; ++rank) {
      const std::uint8_t goes = goes_to[token * c.shape.ranks + rank];
      if (goes > 1) refuse(c, "in_rank[{}, {}] is {}; it must be 0 or 1", token, rank, goes);
      if (goes == 0) continue;
      if (named == most)
        refuse(c, "in_rank[{}] names more than {} ranks; a token has as many results at most: min(ranks, top_k)", token,
               most);
      ids_[static_cast<std::size_t>(token * c.shape.top_k + named++)] = first_expert(c.shape, rank);
    }
  }
}

void CountsInput::apply(const CheckContext& c, const WorldCapabilities& can, const DispatchInput& in,
                        DispatchArgs& args) {
  if (!can.counts_dispatch)
    throw Error(
        ErrorKind::unsupported,
        fmt::format("rank {}: in_rank is given; exchanges of this world dispatch by topk_ids only, so far", c.rank));
  if (args.num_tokens > c.shape.max_tokens) return;  // all ranks will refuse it
  check_beside(c, in);
  require_array(c, "in_rank", or_empty(in.in_rank), {DType::u8}, {args.num_tokens, c.shape.ranks});
  require_array(c, "expert_counts", in.expert_counts, {DType::i32}, {c.shape.experts});
  args.expert_counts = in.expert_counts.as<std::int32_t>();
  if (can.device_memory) {
    args.in_rank = in.in_rank.as<std::uint8_t>();
    return;
  }
  check_counts(c, in);
  make_ids(c, in, args.num_tokens);
  args.ids = {ids_.data(), false};
}

void check_counts_output(const CheckContext& c, const DispatchOutput& out, bool is_replay) {
  const std::pair<const char*, const Tensor&> by_k[] = {{"row_topk_ids", out.row_topk_ids},
                                                        {"row_topk_weights", out.row_topk_weights},
                                                        {"source_starts", out.source_starts},
                                                        {"messages", out.messages},
                                                        {"cumulative_counts", out.cumulative_counts}};
  for (const auto& [name, tensor] : by_k)
    if (tensor) refuse(c, "{} is given; a dispatch with in_rank has no ids that it could tell of: leave it out", name);
  if (is_replay && out.counts)
    refuse(c, "counts is given; a handle of a dispatch with in_rank keeps no counts: leave it out");
}

}  // namespace ferry
