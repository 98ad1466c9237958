// One refusal per argument, in the order of the arguments. Nothing has moved yet (I17).
#include "exchange/validate.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

namespace ferry {
namespace {

template <class... Args>
[[noreturn]] void refuse(const CheckContext& context, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::invalid_argument,
              fmt::format("rank {}: {}", context.rank, fmt::format(format, std::forward<Args>(args)...)));
}

std::string list_of(std::initializer_list<DType> dtypes) {
  std::string text;
  for (const DType dtype : dtypes) text += (text.empty() ? "" : ", ") + std::string(to_string(dtype));
  return text;
}

void require_dtype(const CheckContext& c, const char* name, const ConstTensor& tensor,
                   std::initializer_list<DType> allowed) {
  for (const DType dtype : allowed)
    if (tensor.dtype == dtype) return;
  refuse(c, "{} has dtype {}; it must be one of: {}", name, to_string(tensor.dtype), list_of(allowed));
}

// Where the tensor's owner says that it is memory of a GPU. An exchange on GPUs compares the GPU itself.
void require_host_memory(const CheckContext& c, const char* name, const ConstTensor& tensor) {
  if (tensor && c.takes_host_memory && tensor.device.kind == Device::Kind::cuda)
    refuse(c, "{} is memory of {}; this exchange takes host memory", name, to_string(tensor.device));
}

void require_given(const CheckContext& c, const char* name, const ConstTensor& tensor) {
  if (!tensor) refuse(c, "{} is not given", name);
  require_host_memory(c, name, tensor);
}

// Extents must be equal; -1 in `wanted` takes any.
void require_shape(const CheckContext& c, const char* name, const ConstTensor& tensor,
                   const std::vector<std::int64_t>& wanted) {
  bool same = tensor.rank == static_cast<int>(wanted.size());
  for (std::size_t axis = 0; same && axis < wanted.size(); ++axis)
    same = wanted[axis] < 0 || tensor.shape[axis] == wanted[axis];
  if (same) return;
  std::vector<std::string> extents;
  for (const std::int64_t extent : wanted) extents.push_back(extent < 0 ? "any" : std::to_string(extent));
  refuse(c, "{} is {}; its shape must be [{}]", name, to_string(tensor), fmt::join(extents, ", "));
}

void require_contiguous(const CheckContext& c, const char* name, const ConstTensor& tensor) {
  if (!tensor.is_contiguous())
    refuse(c, "{} is not contiguous; {} must be row-major without gaps", name, to_string(tensor));
}

// Columns side by side, rows at any stride that does not make them overlap.
void require_rows(const CheckContext& c, const char* name, const ConstTensor& tensor, int columns) {
  require_shape(c, name, tensor, {-1, columns});
  if (tensor.strides[1] != 1)
    refuse(c, "{} has a column stride of {} elements; columns must be contiguous (stride 1)", name, tensor.strides[1]);
  if (tensor.shape[0] > 1 && tensor.strides[0] < columns)
    refuse(c, "{} has a row stride of {} elements; the limit is {} or more (a row's columns)", name, tensor.strides[0],
           columns);
}

void require_aligned(const CheckContext& c, const char* name, const ConstTensor& tensor, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
  if (address % bytes != 0) refuse(c, "{} starts at {:#x}; its address must be a multiple of {}", name, address, bytes);
}

Weights check_weights(const CheckContext& c, const char* call, const ConstTensor& weights,
                      float (*hook)(void*, int, int), void* context, bool allowed, std::int64_t num_tokens) {
  if (!allowed && (weights || hook != nullptr))
    refuse(c, "{}: topk_weights are given to {} with reduction {}; leave them out here", call,
           c.options.reduction == Reduction::exact ? "combine" : "dispatch", to_string(c.options.reduction));
  if (weights && hook != nullptr) refuse(c, "{}: topk_weights and router_weight are both given; give one", call);
  if (weights) {
    require_host_memory(c, "topk_weights", weights);
    require_dtype(c, "topk_weights", weights, {DType::f32});
    require_shape(c, "topk_weights", weights, {num_tokens, c.shape.top_k});
    require_contiguous(c, "topk_weights", weights);
    require_aligned(c, "topk_weights", weights, 4);
  }
  return {static_cast<const float*>(weights.data), hook, context, c.shape.top_k};
}

void check_vector(const CheckContext& c, const char* name, const ConstTensor& tensor, DType dtype,
                  std::int64_t length) {
  require_given(c, name, tensor);
  require_dtype(c, name, tensor, {dtype});
  require_shape(c, name, tensor, {length});
  require_contiguous(c, name, tensor);
  require_aligned(c, name, tensor, size_of(dtype));
}

// A tensor that may be left out when it has no rows.
ConstTensor or_empty(const ConstTensor& tensor) {
  static constexpr std::int64_t kNowhere = 0;
  ConstTensor copy = tensor;
  if (!copy && copy.rank > 0 && copy.elements() == 0) copy.data = &kNowhere;
  return copy;
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

// `tokens`: in.tokens, which are checked.
DispatchArgs token_args(const CheckContext& c, const DispatchInput& in, const ConstTensor& tokens) {
  DispatchArgs args;
  args.tokens = static_cast<const std::byte*>(tokens.data);
  args.dtype = tokens.dtype;
  args.row_stride = tokens.strides[0] * static_cast<std::int64_t>(size_of(tokens.dtype));
  args.row_bytes = tokens.shape[1] * static_cast<std::int64_t>(size_of(tokens.dtype));
  args.scales = check_token_scales(c, in, tokens.shape[0]);
  args.num_tokens = static_cast<int>(tokens.shape[0]);
  return args;
}

// Of a dispatch that is given a handle, whose routing it repeats.
DispatchArgs check_replay_input(const CheckContext& c, const DispatchInput& in, const ConstTensor& tokens) {
  if (in.topk_ids) refuse(c, "topk_ids and a handle are both given; a handle holds the routing: leave topk_ids out");
  if (in.topk_weights || in.router_weight != nullptr)
    refuse(
        c,
        "topk_weights are given with a handle; a dispatch with a handle takes no new weights, and combine uses those "
        "of the handle's dispatch: leave them out");
  return token_args(c, in, tokens);
}

}  // namespace

DispatchArgs check_dispatch_input(const CheckContext& c, const DispatchInput& in) {
  const ConstTensor tokens = or_empty(in.tokens);
  const ConstTensor ids = or_empty(in.topk_ids);
  require_given(c, "tokens", tokens);
  require_dtype(c, "tokens", tokens, {DType::bf16, DType::f16, DType::f32, DType::u8});
  const bool is_encoded = tokens.dtype == DType::u8;
  const std::int64_t columns = is_encoded ? c.layout.payload_row_bytes : c.shape.hidden;
  require_rows(c, "tokens", tokens, static_cast<int>(columns));
  const std::int64_t n = tokens.shape[0];
  if (n > c.shape.max_tokens)
    refuse(c, "tokens has {} rows; the limit is max_tokens = {}. Dispatch in several rounds or make a larger exchange",
           n, c.shape.max_tokens);
  require_aligned(c, "tokens", tokens, size_of(tokens.dtype));
  if (in.handle) return check_replay_input(c, in, tokens);
  require_given(c, "topk_ids", ids);
  require_dtype(c, "topk_ids", ids, {DType::i32, DType::i64});
  require_shape(c, "topk_ids", ids, {n, c.shape.top_k});
  require_contiguous(c, "topk_ids", ids);
  require_aligned(c, "topk_ids", ids, size_of(ids.dtype));

  DispatchArgs args = token_args(c, in, tokens);
  args.ids = {ids.data, ids.dtype == DType::i64};
  args.weights = check_weights(c, "dispatch", or_empty(in.topk_weights), in.router_weight, in.router_weight_context,
                               c.options.reduction == Reduction::by_rank, n);
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

RowsOut check_dispatch_output(const CheckContext& c, const DispatchOutput& out) {
  const RowLayout& layout = c.layout;
  require_given(c, "payload", out.payload);
  if (layout.payload_row_bytes == 2 * std::int64_t{layout.hidden} && out.payload.dtype == DType::bf16) {
    require_rows(c, "payload", out.payload, layout.hidden);
  } else {
    require_dtype(c, "payload", out.payload, {DType::u8});
    require_rows(c, "payload", out.payload, static_cast<int>(layout.payload_row_bytes));
  }
  require_contiguous(c, "payload", out.payload);
  require_aligned(c, "payload", out.payload, 16);
  const std::int64_t capacity = out.payload.shape[0];
  if (capacity < layout.min_row_capacity)
    refuse(c, "payload holds {} rows; the limit is row_capacity >= {} (RowLayout::min_row_capacity)", capacity,
           layout.min_row_capacity);

  RowsOut rows;
  rows.payload = static_cast<std::byte*>(out.payload.data);
  rows.row_bytes = static_cast<std::size_t>(layout.payload_row_bytes);
  rows.scales = {nullptr, ScaleLayout::none, 0, 0, capacity};
  if (layout.scale_layout != ScaleLayout::none) {
    require_given(c, "scales", out.scales);
    require_dtype(c, "scales", out.scales, {layout.scale_dtype});
    require_shape(c, "scales", out.scales, layout.scales_shape(capacity));
    require_contiguous(c, "scales", out.scales);
    require_aligned(c, "scales", out.scales, size_of(layout.scale_dtype));
    rows.scales = {static_cast<std::byte*>(out.scales.data), layout.scale_layout,
                   static_cast<int>(size_of(layout.scale_dtype)), layout.scales_per_row, capacity};
    rows.stores_scales = true;
  } else if (out.scales) {
    refuse(c, "scales is given ({}); the format {} has none", to_string(out.scales), c.options.format.name());
  }
  check_vector(c, "row_offsets", out.row_offsets, DType::u32, layout.groups + 1);
  check_vector(c, "expert_ids", out.expert_ids, DType::i32, layout.groups);
  require_given(c, "src_info", out.src_info);
  require_dtype(c, "src_info", out.src_info, {DType::i32});
  require_shape(c, "src_info", out.src_info, {capacity, 2});
  require_contiguous(c, "src_info", out.src_info);
  require_aligned(c, "src_info", out.src_info, 4);
  if (layout.scale_layout == ScaleLayout::tiled)
    check_vector(c, "scales_offsets", out.scales_offsets, DType::u32, layout.groups);
  else if (out.scales_offsets)
    refuse(c, "scales_offsets is given; only tiled scales have it, these are {}", to_string(layout.scale_layout));
  rows.row_offsets = static_cast<std::uint32_t*>(out.row_offsets.data);
  rows.expert_ids = static_cast<std::int32_t*>(out.expert_ids.data);
  rows.src_info = static_cast<std::int32_t*>(out.src_info.data);
  rows.scales_offsets = static_cast<std::uint32_t*>(out.scales_offsets.data);
  return rows;
}

void check_added_mask(const CheckContext& c, const RankMask& mask) {
  if (mask.size() > static_cast<std::size_t>(c.shape.ranks))
    refuse(c, "add_to_mask: the mask has {} entries; it must have at most one for each of {} ranks", mask.size(),
           c.shape.ranks);
  if (is_masked(mask, c.rank))
    refuse(c, "add_to_mask: the mask takes out this rank itself; a rank that leaves destroys its exchange");
}

CombineArgs check_combine_input(const CheckContext& c, const CombineInput& in, int num_tokens, std::uint32_t num_rows) {
  const ConstTensor rows = or_empty(in.rows);
  require_given(c, "rows", rows);
  require_dtype(c, "rows", rows, {DType::bf16, DType::f32});
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
  args.is_f32 = rows.dtype == DType::f32;
  args.weights = check_weights(c, "combine", or_empty(in.topk_weights), in.router_weight, in.router_weight_context,
                               c.options.reduction == Reduction::exact, num_tokens);
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
  require_dtype(c, "tokens", tokens, {DType::bf16, DType::f32});
  result.unreduced = tokens.rank == 3;
  if (result.unreduced) {
    if (c.options.reduction != Reduction::exact)
      refuse(c, "tokens is {}: unreduced output needs reduction exact; this exchange is by_rank", to_string(tokens));
    if (c.options.fused_shared_expert)
      refuse(c, "tokens is {}: unreduced output has no place for the fused shared expert's rows", to_string(tokens));
    if (out.epilogue != nullptr) refuse(c, "tokens is {}: unreduced output takes no epilogue", to_string(tokens));
    if (sent.weights.data != nullptr || sent.weights.hook != nullptr)
      refuse(
          c,
          "tokens is {}: unreduced rows are not weighted, and {} was given. Leave it out, or give tokens of two axes",
          to_string(tokens), sent.weights.data != nullptr ? "topk_weights" : "router_weight");
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

}  // namespace ferry
