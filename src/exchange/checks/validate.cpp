// One refusal per argument, in the order of the arguments. Nothing has moved yet (I17).
#include "exchange/checks/validate.h"

#include <fmt/format.h>

#include <cmath>

#include "exchange/checks/refuse.h"
#include "exchange/checks/tensor_checks.h"

namespace ferry {
namespace {

Weights check_weights(const CheckContext& c, const char* call, const ConstTensor& weights,
                      float (*hook)(void*, int, int), void* context, bool allowed, std::int64_t num_tokens) {
  if (!allowed && (weights || hook != nullptr)) {
    const bool is_exact = c.options.reduction == Reduction::exact;
    const bool chooses = c.options.reduction == Reduction::either;
    refuse(c, "{}: topk_weights are given to {} with reduction {}; leave them out here{}", call,
           is_exact ? "combine" : "dispatch", is_exact ? "exact" : "by_rank",
           is_exact  ? ""
           : chooses ? ", or say that this combine is exact"
                     : ", or make the exchange with late_weights");
  }
  if (weights && hook != nullptr) refuse(c, "{}: topk_weights and router_weight are both given; give one", call);
  if (weights) {
    require_host_memory(c, "topk_weights", weights);
    if (c.narrow_weights)
      require_dtype(c, "topk_weights", weights, {DType::f32, DType::bf16, DType::f16});
    else
      require_dtype(c, "topk_weights", weights, {DType::f32});
    require_shape(c, "topk_weights", weights, {num_tokens, c.shape.top_k});
    require_contiguous(c, "topk_weights", weights);
    require_aligned(c, "topk_weights", weights, size_of(weights.dtype));
  }
  return {static_cast<const float*>(weights.data), hook, context, c.shape.top_k, weights ? weights.dtype : DType::f32};
}

// The scales of encoded tokens.
GivenScales check_token_scales(const CheckContext& c, const DispatchInput& in, std::int64_t num_tokens) {
  const RowLayout& layout = c.layout;
  if (in.token_scales && in.tokens.dtype != DType::u8)
    refuse(c, "token_scales is given, but tokens is {}: scales come with encoded tokens only, which are u8 [n, {}]",
           to_string(in.tokens), layout.payload_row_bytes);
  if (in.token_scales && layout.scales_per_row == 0)
    refuse(c, "token_scales is given ({}); the format {} has none", to_string(in.token_scales),
           c.options.format.name());
  if (in.tokens.dtype != DType::u8 || layout.scales_per_row == 0) return {};
  const ConstTensor scales = or_empty(in.token_scales);
  require_given(c, "token_scales", scales);
  require_host_memory(c, "token_scales", scales);
  require_dtype(c, "token_scales", scales, {layout.scale_dtype});
  require_shape(c, "token_scales", scales, {num_tokens, layout.scales_per_row});
  const auto bytes = static_cast<std::int64_t>(size_of(layout.scale_dtype));
  require_aligned(c, "token_scales", scales, static_cast<std::size_t>(bytes));
  return {static_cast<const std::byte*>(scales.data), scales.strides[0] * bytes, scales.strides[1] * bytes,
          static_cast<int>(bytes), layout.scales_per_row};
}

// Encoded tokens with dynamic_scales have a global scale each.
const float* check_token_global_scales(const CheckContext& c, const DispatchInput& in, std::int64_t num_tokens) {
  const bool wanted = c.options.dynamic_scales && in.tokens.dtype == DType::u8;
  if (c.options.dynamic_scales && in.input_scale != nullptr)
    refuse(c, "input_scale is given; with dynamic_scales each token has a scale of its own: leave it out");
  if (in.token_global_scales && !wanted)
    refuse(c, "token_global_scales is given; only encoded tokens of an exchange with dynamic_scales come with it");
  if (!wanted) return nullptr;
  const ConstTensor scales = or_empty(in.token_global_scales);
  require_array(c, "token_global_scales", scales, {DType::f32}, {num_tokens});
  return static_cast<const float*>(scales.data);
}

// `tokens`: in.tokens, which are checked.
DispatchArgs token_args(const CheckContext& c, const DispatchInput& in, const ConstTensor& tokens) {
  DispatchArgs args;
  args.tokens = static_cast<const std::byte*>(tokens.data);
  args.dtype = tokens.dtype;
  args.row_stride = tokens.strides[0] * static_cast<std::int64_t>(size_of(tokens.dtype));
  args.row_bytes = tokens.shape[1] * static_cast<std::int64_t>(size_of(tokens.dtype));
  args.scales = check_token_scales(c, in, tokens.shape[0]);
  args.global_scales = check_token_global_scales(c, in, tokens.shape[0]);
  args.num_tokens = static_cast<int>(tokens.shape[0]);
  return args;
}

// A replay: the dispatch repeats the routing of the handle that it is given.
DispatchArgs check_replay_input(const CheckContext& c, const DispatchInput& in, const ConstTensor& tokens) {
  if (in.topk_ids) refuse(c, "topk_ids and a handle are both given; a handle holds the routing: leave topk_ids out");
  if ((in.topk_weights || in.router_weight != nullptr) && !c.options.late_weights)
    refuse(c,
           "topk_weights are given with a handle; combine uses those of the handle's dispatch. Leave them out, or make "
           "the exchange with late_weights");
  DispatchArgs args = token_args(c, in, tokens);
  args.weights = check_weights(c, "dispatch", or_empty(in.topk_weights), in.router_weight, in.router_weight_context,
                               true, tokens.shape[0]);
  return args;
}

}  // namespace

DispatchArgs check_dispatch_input(const CheckContext& c, const DispatchInput& in) {
  const ConstTensor tokens = or_empty(in.tokens);
  const ConstTensor ids = or_empty(in.topk_ids);
  require_given(c, "tokens", tokens);
  const bool is_encoded = tokens.dtype == DType::u8;
  if (!is_encoded && !c.options.format.encodes())
    refuse(c, "tokens is {}; nothing encodes into the format {}: give u8 [n, {}]", to_string(tokens),
           c.options.format.name(), c.layout.payload_row_bytes);
  require_dtype(c, "tokens", tokens, {DType::bf16, DType::f16, DType::f32, DType::u8});
  const std::int64_t columns = is_encoded ? c.layout.payload_row_bytes : c.shape.hidden;
  require_rows(c, "tokens", tokens, static_cast<int>(columns));
  const std::int64_t n = tokens.shape[0];
  if (n > c.shape.max_tokens && c.learns_counts && !in.handle && !c.options.skip_a2a) {
    DispatchArgs excess;
    excess.num_tokens = static_cast<int>(std::min<std::int64_t>(n, INT32_MAX));
    return excess;
  }
  if (n > c.shape.max_tokens)
    refuse(c, "tokens has {} rows; the limit is max_tokens = {}. Dispatch in several rounds or make a larger exchange",
           n, c.shape.max_tokens);
  require_aligned(c, "tokens", tokens, size_of(tokens.dtype));
  if (in.expert_counts && !in.in_rank && n != 0)
    refuse(c, "expert_counts is given without in_rank; counts are those of the experts that in_rank's tokens are for");
  if (in.in_rank || in.expert_counts) return token_args(c, in, tokens);  // the rest: CountsInput
  if (in.handle) return check_replay_input(c, in, tokens);
  require_given(c, "topk_ids", ids);
  require_dtype(c, "topk_ids", ids, {DType::i32, DType::i64});
  require_shape(c, "topk_ids", ids, {n, c.shape.top_k});
  require_contiguous(c, "topk_ids", ids);
  require_aligned(c, "topk_ids", ids, size_of(ids.dtype));

  DispatchArgs args = token_args(c, in, tokens);
  args.ids = {ids.data, ids.dtype == DType::i64};
  args.weights = check_weights(c, "dispatch", or_empty(in.topk_weights), in.router_weight, in.router_weight_context,
                               c.options.reduction != Reduction::exact, n);
  return args;
}

float check_input_scale(const CheckContext& c, const float* input_scale) {
  if (input_scale == nullptr) return 1.0f;
  if (!std::isfinite(*input_scale) || *input_scale <= 0.0f)
    refuse(c, "input_scale is {}; it must be finite and greater than 0", *input_scale);
  return *input_scale;
}

void check_topk_ids(const CheckContext& c, const DispatchArgs& args) {
  const int top_k = c.shape.top_k;
  for (int token = 0; token < args.num_tokens; ++token) {
    std::int64_t seen[kMaxTopK];
    for (int k = 0; k < top_k; ++k) {
      const std::int64_t id = args.ids.at(std::int64_t{token} * top_k + k);
      if (id < -1 || id >= c.shape.experts)
        refuse(c, "topk_ids[{}, {}] is {}; it must be -1 (no expert) or 0 to {}", token, k, id, c.shape.experts - 1);
      for (int earlier = 0; earlier < k; ++earlier)
        if (seen[earlier] == id && id >= 0)
          refuse(c, "topk_ids[{}, {}] is {}, which topk_ids[{}, {}] is already; the ids of a token must be distinct",
                 token, k, id, token, earlier);
      seen[k] = id;
    }
  }
}

void check_added_mask(const CheckContext& c, const RankMask& mask) {
  if (mask.size() > static_cast<std::size_t>(c.shape.ranks))
    refuse(c, "add_to_mask: the mask has {} entries; it must have at most one for each of {} ranks", mask.size(),
           c.shape.ranks);
  if (is_masked(mask, c.rank))
    refuse(c, "add_to_mask: the mask takes out this rank itself; a rank that leaves destroys its exchange");
}

namespace {

// Checks the dtype of rows, bias or sums.
void require_sum_dtype(const CheckContext& c, const char* name, const ConstTensor& tensor) {
  if (c.takes_f16)
    require_dtype(c, name, tensor, {DType::bf16, DType::f16, DType::f32});
  else
    require_dtype(c, name, tensor, {DType::bf16, DType::f32});
}

// By_source rows are refused where the order is known (take_reduction).
Reduction reduction_of(const CheckContext& c, const CombineInput& in) {
  const Reduction of_exchange = c.options.reduction;
  if (!in.reduction) return of_exchange == Reduction::exact ? Reduction::exact : Reduction::by_rank;
  if (*in.reduction == Reduction::either || (of_exchange != Reduction::either && *in.reduction != of_exchange))
    refuse(c,
           "reduction is {}; this exchange is {}: leave it out, or make the exchange with reduction either and say "
           "by_rank or exact",
           to_string(*in.reduction), to_string(of_exchange));
  return *in.reduction;
}

// GPUs add all columns of the bias in one width: both have one dtype.
void check_bias(const CheckContext& c, const CombineInput& in, int num_tokens, CombineArgs& args) {
  for (int index = 0; index < kMaxBias; ++index) {
    const ConstTensor& given = in.bias[index];
    if (!given) continue;
    const std::string name = fmt::format("bias[{}]", index);
    const ConstTensor bias = or_empty(given);
    require_host_memory(c, name.c_str(), bias);
    require_sum_dtype(c, name.c_str(), bias);
    require_rows(c, name.c_str(), bias, c.shape.hidden);
    require_aligned(c, name.c_str(), bias, size_of(bias.dtype));
    if (num_tokens >= 0 && bias.shape[0] != num_tokens)
      refuse(c, "{} is {}; this round dispatched {} tokens", name, to_string(bias), num_tokens);
    if (args.num_bias != 0 && args.bias[0].dtype != bias.dtype)
      refuse(c, "bias[0] is {}, bias[1] is {}; both must have one dtype", to_string(in.bias[0]), to_string(in.bias[1]));
    args.bias[std::min(args.num_bias++, index)] = {static_cast<const std::byte*>(bias.data),
                                                   bias.strides[0] * static_cast<std::int64_t>(size_of(bias.dtype)),
                                                   bias.dtype};
  }
}

}  // namespace

CombineArgs check_combine_input(const CheckContext& c, const CombineInput& in, int num_tokens, std::uint32_t num_rows) {
  const ConstTensor rows = or_empty(in.rows);
  require_given(c, "rows", rows);
  require_sum_dtype(c, "rows", rows);
  require_rows(c, "rows", rows, c.shape.hidden);
  require_aligned(c, "rows", rows, size_of(rows.dtype));
  if (rows.shape[0] < num_rows)
    refuse(c, "rows has {} rows; the dispatch laid out {} (row_offsets[groups])", rows.shape[0], num_rows);
  if (in.src_info) {
    require_host_memory(c, "src_info", in.src_info);
    require_dtype(c, "src_info", in.src_info, {DType::i32});
    require_shape(c, "src_info", in.src_info, {-1, 2});
    require_contiguous(c, "src_info", in.src_info);
    require_aligned(c, "src_info", in.src_info, 4);
    if (in.src_info.shape[0] < num_rows)
      refuse(c, "src_info has {} rows; the dispatch laid out {} (row_offsets[groups])", in.src_info.shape[0], num_rows);
  }
  CombineArgs args;
  args.rows = static_cast<const std::byte*>(rows.data);
  args.row_stride = rows.strides[0] * static_cast<std::int64_t>(size_of(rows.dtype));
  args.num_rows = static_cast<std::uint32_t>(std::min<std::int64_t>(rows.shape[0], UINT32_MAX));
  args.dtype = rows.dtype;
  check_bias(c, in, num_tokens, args);
  args.exact = reduction_of(c, in) == Reduction::exact;
  const bool by_rank = !args.exact;
  if (in.sum_order != SumOrder::by_rank && !by_rank)
    refuse(c, "sum_order is by_last_k; reduction exact has one order, k ascending. Leave it out");
  if (!in.apply_weights && !by_rank)
    refuse(c, "apply_weights is false; reduction exact takes weights here: leave topk_weights out, and apply_weights");
  args.by_last_k = in.sum_order == SumOrder::by_last_k;
  args.applies_weights = in.apply_weights;
  args.weights = check_weights(c, "combine", or_empty(in.topk_weights), in.router_weight, in.router_weight_context,
                               !by_rank || c.options.late_weights, num_tokens);
  return args;
}

CombineOut check_combine_output(const CheckContext& c, const CombineOutput& out, const CombineArgs& sent,
                                int num_tokens) {
  CombineOut result;
  result.epilogue = out.epilogue;
  result.context = out.epilogue_context;
  const ConstTensor tokens = or_empty(out.tokens);
  if (!tokens) {
    if (out.epilogue == nullptr) refuse(c, "tokens is not given, and no epilogue takes the sums in its place");
    return result;
  }
  require_host_memory(c, "tokens", tokens);
  require_sum_dtype(c, "tokens", tokens);
  result.unreduced = tokens.rank == 3;
  if (result.unreduced) {
    if (!sent.exact)
      refuse(c, "tokens is {}: unreduced output needs reduction exact; this combine is by_rank", to_string(tokens));
    if (c.options.fused_shared_expert)
      refuse(c, "tokens is {}: unreduced output has no place for the fused shared expert's rows", to_string(tokens));
    if (out.epilogue != nullptr) refuse(c, "tokens is {}: unreduced output takes no epilogue", to_string(tokens));
    if (sent.weights.data != nullptr || sent.weights.hook != nullptr)
      refuse(
          c,
          "tokens is {}: unreduced rows are not weighted, and {} was given. Leave it out, or give tokens of two axes",
          to_string(tokens), sent.weights.data != nullptr ? "topk_weights" : "router_weight");
    if (sent.num_bias != 0) refuse(c, "tokens is {}: unreduced output takes no bias", to_string(tokens));
    require_shape(c, "tokens", tokens, {num_tokens, c.shape.top_k, c.shape.hidden});
    require_contiguous(c, "tokens", tokens);
  } else {
    require_rows(c, "tokens", tokens, c.shape.hidden);
    if (tokens.shape[0] != num_tokens)
      refuse(c, "tokens is {}; this round dispatched {} tokens", to_string(tokens), num_tokens);
  }
  require_aligned(c, "tokens", tokens, size_of(tokens.dtype));
  result.tokens = const_cast<std::byte*>(static_cast<const std::byte*>(tokens.data));
  result.dtype = tokens.dtype;
  result.token_bytes = tokens.strides[0] * static_cast<std::int64_t>(size_of(tokens.dtype));
  return result;
}

// I18
void check_src_info_row(const CheckContext& c, const std::int32_t* src_info, std::uint32_t row, int source,
                        int source_tokens, int token, int k) {
  const std::int32_t given_token = src_info[2 * static_cast<std::size_t>(row)];
  const std::int32_t given_k = src_info[2 * static_cast<std::size_t>(row) + 1];
  if (given_token == token && given_k == k) return;
  if (given_token < 0 || given_token >= source_tokens)
    refuse(c, "src_info[{}] names token {}; source rank {} dispatched tokens 0 to {}", row, given_token, source,
           source_tokens - 1);
  if (given_k < 0 || given_k > c.shape.top_k)
    refuse(c, "src_info[{}] names k = {}; the limit is top_k = {}", row, given_k, c.shape.top_k);
  refuse(c,
         "src_info[{}] is ({}, {}); dispatch laid out ({}, {}) of source rank {} there: rows must stay in dispatch's "
         "order",
         row, given_token, given_k, token, k, source);
}

void check_source_info_row(const CheckContext& c, const std::int32_t* src_info, std::uint32_t row, int source,
                           int token) {
  const std::int32_t* given = src_info + 2 * static_cast<std::size_t>(row);
  if (given[0] != token || given[1] != source)
    refuse(c,
           "src_info[{}] is ({}, {}); dispatch laid out token {} of source rank {} there: rows must stay in dispatch's "
           "order",
           row, given[0], given[1], token, source);
}

}  // namespace ferry
