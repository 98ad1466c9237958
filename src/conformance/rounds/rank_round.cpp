// Builds one rank's tensors from a scenario.
#include "conformance/rounds/rank_round.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "conformance/oracle/size.h"

namespace ferry::conformance {
namespace {

constexpr std::size_t kGuardBytes = 64;  // behind every output; must stay poisoned

using test::size;

template <class T>
void put(std::vector<std::byte>& bytes, std::size_t index, T value) {
  std::memcpy(bytes.data() + index * sizeof(T), &value, sizeof(T));
}

// `value` is one that the dtype can hold.
void put_value(std::vector<std::byte>& bytes, std::size_t index, DType dtype, float value) {
  if (dtype == DType::f32) return put(bytes, index, value);
  put(bytes, index, dtype == DType::f16 ? test::to_f16(value) : test::to_bf16(value));
}

std::vector<std::byte> poisoned(std::int64_t bytes) {
  return std::vector<std::byte>(size(bytes) + kGuardBytes, kPoison);
}

// [rows, columns] with `gap` elements between rows.
template <class Memory>
auto strided(Memory* memory, DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t gap) {
  BasicTensor<Memory> tensor(memory, dtype, {rows, columns});
  tensor.strides[0] = columns + gap;
  return tensor;
}

std::int64_t strided_bytes(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t gap) {
  return rows * (columns + gap) * static_cast<std::int64_t>(size_of(dtype));
}

Tensor tensor_of(void* memory, DType dtype, const std::vector<std::int64_t>& shape) {
  Tensor tensor(memory, dtype, {});
  tensor.rank = static_cast<int>(shape.size());
  std::int64_t stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    tensor.shape[axis] = shape[axis];
    tensor.strides[axis] = stride;
    stride *= shape[axis];
  }
  return tensor;
}

}  // namespace

RankRound::RankRound(const Scenario& scenario, int rank)
    : own_(own_of(scenario, rank)),
      scenario_(own_ ? *own_ : scenario),
      rank_(rank),
      given_(scenario_.round.ranks[size(rank)]),
      expected_(scenario_.rows[size(rank)]) {
  call.max_blocks = scenario_.settings.max_blocks;
  weight_table_ = {&given_.weights, scenario_.round.shape.top_k};
  make_input();
  make_output();
  make_combine_input();
  make_combine_output();
  if (scenario_.settings.options.returns_weights) make_returned_weights();
}

// What the oracle says of this rank alone.
std::unique_ptr<const Scenario> RankRound::own_of(const Scenario& scenario, int rank) {
  if (!scenario.settings.each_its_own) return nullptr;
  auto own = std::make_unique<Scenario>(scenario);
  own->settings = settings_at(scenario.settings, rank);
  own->round.sum_order = own->settings.sum_order;
  own->round.zero_padding = own->settings.zero_padding;
  return own;
}

bool RankRound::gives_encoded() const {
  const Encoded encoded = scenario_.settings.encoded;
  return encoded == Encoded::all || (encoded == Encoded::odd_ranks && rank_ % 2 == 1);
}

// Scales lie side by side on even ranks, and transposed on odd ones.
void RankRound::make_encoded_tokens() {
  const ScenarioSettings& s = scenario_.settings;
  const AnyFormat& format = s.options.format;
  const RowLayout layout = row_layout(s.shape, s.options, rank_);
  const std::size_t n = size(given_.num_tokens);
  const std::size_t row_bytes = size(s.shape.hidden) * size_of(s.token_dtype);
  const std::size_t payload_bytes = size(layout.payload_row_bytes), step = payload_bytes + size(s.token_gap);
  const std::size_t count = size(layout.scales_per_row), bytes = size_of(layout.scale_dtype);
  tokens.assign(n * step, kPoison);
  token_scales.assign(n * count * bytes, kPoison);
  std::vector<std::max_align_t> payload_of_one(payload_bytes / sizeof(std::max_align_t) + 1);
  std::vector<std::max_align_t> scales_of_one(count * bytes / sizeof(std::max_align_t) + 1);
  auto* const codes = reinterpret_cast<std::byte*>(payload_of_one.data());
  auto* const scales_of_row = reinterpret_cast<std::byte*>(scales_of_one.data());
  const bool transposed = rank_ % 2 == 1;
  for (std::size_t token = 0; token < n; ++token) {
    const InputRow row{given_.tokens.data() + token * row_bytes, s.token_dtype};
    const float scale = s.options.dynamic_scales ? test::dynamic_scale(row, s.shape.hidden) : s.input_scale;
    token_global_scales.push_back(1.0f / scale);
    format.encode(SerialGroup{}, row, s.shape.hidden, scale, codes, scales_of_row);
    std::memcpy(tokens.data() + token * step, codes, payload_bytes);
    for (std::size_t i = 0; i < count; ++i)
      std::memcpy(token_scales.data() + (transposed ? i * n + token : token * count + i) * bytes,
                  scales_of_row + i * bytes, bytes);
  }
  if (s.options.dynamic_scales)
    in.token_global_scales = ConstTensor(token_global_scales.data(), DType::f32, {given_.num_tokens});
  in.tokens = strided<const void>(tokens.data(), DType::u8, given_.num_tokens, layout.payload_row_bytes, s.token_gap);
  if (count == 0) return;
  in.token_scales = ConstTensor(token_scales.data(), layout.scale_dtype, {given_.num_tokens, layout.scales_per_row});
  if (transposed) {
    in.token_scales.strides[0] = 1;
    in.token_scales.strides[1] = given_.num_tokens;
  }
}

void RankRound::make_input() {
  const ScenarioSettings& s = scenario_.settings;
  const std::size_t row_bytes = size(s.shape.hidden) * size_of(s.token_dtype);
  const std::size_t step = row_bytes + size(s.token_gap) * size_of(s.token_dtype);
  tokens.assign(size(given_.num_tokens) * step, kPoison);
  for (std::size_t token = 0; token < size(given_.num_tokens); ++token)
    std::memcpy(tokens.data() + token * step, given_.tokens.data() + token * row_bytes, row_bytes);
  in.tokens = strided<const void>(tokens.data(), s.token_dtype, given_.num_tokens, s.shape.hidden, s.token_gap);
  if (gives_encoded()) make_encoded_tokens();

  topk_ids.resize(given_.topk_ids.size() * size_of(s.id_dtype));
  for (std::size_t i = 0; i < given_.topk_ids.size(); ++i) {
    if (s.id_dtype == DType::i64)
      put(topk_ids, i, given_.topk_ids[i]);
    else
      put(topk_ids, i, static_cast<std::int32_t>(given_.topk_ids[i]));
  }
  in.topk_ids = ConstTensor(topk_ids.data(), s.id_dtype, {given_.num_tokens, s.shape.top_k});
  if (s.by_counts) make_counts_input();

  weights.resize(given_.weights.size() * size_of(s.weight_dtype));
  for (std::size_t i = 0; i < given_.weights.size(); ++i) put_value(weights, i, s.weight_dtype, given_.weights[i]);
  const ConstTensor weight_tensor(weights.data(), s.weight_dtype, {given_.num_tokens, s.shape.top_k});
  const auto hook = [](void* context, int token, int k) {
    const auto* table = static_cast<const WeightTable*>(context);
    return (*table->values)[size(token * table->top_k + k)];
  };
  const bool at_dispatch = s.options.reduction != Reduction::exact && !given_.weights_are_late;
  const bool at_combine = !at_dispatch || (scenario_.round.reduction == Reduction::exact && !s.unreduced);
  if (s.weights == WeightForm::array && at_dispatch) in.topk_weights = weight_tensor;
  if (s.weights == WeightForm::array && at_combine) combine_in.topk_weights = weight_tensor;
  if (s.weights == WeightForm::hook && at_dispatch) {
    in.router_weight = hook;
    in.router_weight_context = &weight_table_;
  }
  if (s.weights == WeightForm::hook && at_combine) {
    combine_in.router_weight = hook;
    combine_in.router_weight_context = &weight_table_;
  }
  if (s.input_scale != 1.0f) in.input_scale = &s.input_scale;
  in.row_order = given_.row_order;
  if (in.row_order == RowOrder::padded) in.expert_stride = given_.expert_stride;
  in.overflow = s.overflow;
  in.format = s.format;
}

void RankRound::make_counts_input() {
  const Shape& shape = scenario_.settings.shape;
  in_rank.assign(size(given_.num_tokens * shape.ranks), std::byte{0});
  for (std::size_t i = 0; i < given_.topk_ids.size(); ++i) {
    const std::size_t token = i / size(shape.top_k);
    if (given_.topk_ids[i] >= 0)
      in_rank[token * size(shape.ranks) + size(owner_of(shape, static_cast<int>(given_.topk_ids[i])))] = std::byte{1};
  }
  in.topk_ids = {};
  in.in_rank = ConstTensor(in_rank.data(), DType::u8, {given_.num_tokens, shape.ranks});
  expert_counts = given_.expert_counts;
  in.expert_counts = ConstTensor(expert_counts.data(), DType::i32, {shape.experts});
}

// By hand, not by dispatch_outputs: where that list lacked an output, the suite would not see it.
void RankRound::make_output() {
  const ScenarioSettings& s = scenario_.settings;
  const RowOrder order = given_.row_order;
  const std::int64_t capacity = scenario_.row_capacity[size(rank_)];
  const RowLayout layout = row_layout(s.shape, s.options, rank_);
  const auto payload_bytes = static_cast<std::int64_t>(s.options.format.payload_bytes(s.shape.hidden));
  payload = poisoned(capacity * payload_bytes);
  const bool is_bf16 = s.options.format.name() == std::string("bf16");
  scales = poisoned(static_cast<std::int64_t>(expected_.scales.size()));
  if (order != RowOrder::in_place) {
    out.payload = is_bf16 ? Tensor(payload.data(), DType::bf16, {capacity, s.shape.hidden})
                          : Tensor(payload.data(), DType::u8, {capacity, payload_bytes});
    if (s.options.format.scale_bytes() != 0)
      out.scales = tensor_of(scales.data(), s.options.format.scale_bytes() == 4 ? DType::f32 : DType::u8,
                             layout.scales_shape(capacity, order, in.expert_stride));
  }
  const std::int64_t groups = test::num_groups(scenario_.round, rank_);
  row_offsets = poisoned((groups + 1) * 4);
  expert_ids = poisoned(groups * 4);
  src_info = poisoned(capacity * 8);
  scales_offsets = poisoned(groups * 4);
  out.src_info = Tensor(src_info.data(), DType::i32, {capacity, 2});
  if (order != RowOrder::by_source) {
    out.row_offsets = Tensor(row_offsets.data(), DType::u32, {groups + 1});
    out.expert_ids = Tensor(expert_ids.data(), DType::i32, {groups});
    if (test::scale_layout_of(s.options) == ScaleLayout::tiled && order != RowOrder::in_place)
      out.scales_offsets = Tensor(scales_offsets.data(), DType::u32, {groups});
  }
  if (s.left_out.row_offsets) out.row_offsets = {};
  if (s.left_out.expert_ids) out.expert_ids = {};
  if (s.left_out.src_info) out.src_info = {};
  make_outputs_of_order();
  out.zero_padding = s.zero_padding;
  if (s.more_outputs) {
    more_ = std::make_unique<MoreOutputs>(scenario_, rank_);
    more_->give(out);
  }
}

void RankRound::make_outputs_of_order() {
  const ScenarioSettings& s = scenario_.settings;
  const RowOrder order = given_.row_order;
  const std::int64_t capacity = scenario_.row_capacity[size(rank_)];
  const std::int64_t groups = test::num_groups(scenario_.round, rank_);
  const std::int64_t entries = capacity * s.shape.top_k;
  const std::int64_t sources = s.options.skip_a2a ? 1 : s.shape.ranks;
  counts = poisoned(groups * 4);
  row_topk_ids = poisoned(entries * static_cast<std::int64_t>(size_of(s.id_dtype)));
  row_topk_weights = poisoned(entries * 4);
  source_offsets = poisoned((sources + 1) * 4);
  gather = poisoned(capacity * 4);
  const DType scale_dtype = order == RowOrder::in_place ? DType::f32 : s.global_scale_dtype;
  global_scales = poisoned(capacity * static_cast<std::int64_t>(size_of(scale_dtype)));
  if (s.options.dynamic_scales && order != RowOrder::in_place)
    out.global_scales = Tensor(global_scales.data(), scale_dtype, {capacity});
  if (order == RowOrder::padded || order == RowOrder::by_source)
    out.counts = Tensor(counts.data(), DType::i32, {groups});
  if (order == RowOrder::by_source) {
    if (!s.by_counts) out.row_topk_ids = Tensor(row_topk_ids.data(), s.id_dtype, {capacity, s.shape.top_k});
    if (!s.by_counts) out.row_topk_weights = Tensor(row_topk_weights.data(), DType::f32, {capacity, s.shape.top_k});
    out.source_offsets = Tensor(source_offsets.data(), DType::u32, {sources + 1});
  }
  if (order == RowOrder::in_place) out.gather = Tensor(gather.data(), DType::i32, {capacity});
}

void RankRound::make_combine_input() {
  const ScenarioSettings& s = scenario_.settings;
  const std::int64_t num_rows =
      std::min(static_cast<std::int64_t>(expected_.rows.size()), scenario_.row_capacity[size(rank_)]);
  const std::int64_t given_rows = num_rows + scenario_.settings.spare_rows / 2;  // more than there are is allowed
  const std::vector<float>& values = scenario_.expert_output[size(rank_)];
  rows.assign(size(strided_bytes(s.row_dtype, given_rows, s.shape.hidden, s.row_gap)), kPoison);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    for (std::int64_t column = 0; column < s.shape.hidden; ++column) {
      const std::size_t index = size(row * (s.shape.hidden + s.row_gap) + column);
      put_value(rows, index, s.row_dtype, values[size(row * s.shape.hidden + column)]);
    }
  }
  combine_in.rows = strided<const void>(rows.data(), s.row_dtype, given_rows, s.shape.hidden, s.row_gap);
  combine_in.src_info = out.src_info;
  if (s.options.reduction == Reduction::either) combine_in.reduction = s.chosen;
  combine_in.sum_order = s.sum_order;
  combine_in.apply_weights = s.applies_weights;
  for (std::size_t i = 0; i < given_.bias.size(); ++i) make_bias(i);
}

void RankRound::make_returned_weights() {
  const int top_k = scenario_.settings.shape.top_k;
  row_weights = scenario_.row_weights[size(rank_)];
  const auto rows_given = static_cast<std::int64_t>(expected_.rows.size());
  returned = poisoned(std::int64_t{given_.num_tokens} * top_k * 4);
  combine_out.topk_weights = Tensor(returned.data(), DType::f32, {given_.num_tokens, top_k});
  if (row_weights.empty()) return;
  combine_in.row_topk_weights = given_.row_order == RowOrder::by_source
                                    ? ConstTensor(row_weights.data(), DType::f32, {rows_given, top_k})
                                    : ConstTensor(row_weights.data(), DType::f32, {rows_given});
}

void RankRound::make_bias(std::size_t index) {
  const ScenarioSettings& s = scenario_.settings;
  const std::int64_t n = given_.num_tokens;
  bias[index].assign(size(strided_bytes(s.bias_dtype, n, s.shape.hidden, s.output_gap)), kPoison);
  for (std::size_t i = 0; i < given_.bias[index].size(); ++i) {
    const std::size_t at = i / size(s.shape.hidden) * size(s.shape.hidden + s.output_gap) + i % size(s.shape.hidden);
    put_value(bias[index], at, s.bias_dtype, given_.bias[index][i]);
  }
  combine_in.bias[index] = strided<const void>(bias[index].data(), s.bias_dtype, n, s.shape.hidden, s.output_gap);
}

void RankRound::make_combine_output() {
  const ScenarioSettings& s = scenario_.settings;
  const std::int64_t n = given_.num_tokens;
  if (s.epilogue) {
    collected_.hidden = s.shape.hidden;
    collected_.values.assign(size(n * s.shape.hidden), 0.0f);
    collected_.calls.assign(size(n * s.shape.hidden), 0);
    combine_out.epilogue_context = &collected_;
    combine_out.epilogue = [](void* context, int token, int column, const float* values, int count) {
      auto* collected = static_cast<Collected*>(context);
      const std::size_t first = size(token) * size(collected->hidden) + size(column);
      for (std::size_t i = 0; i < size(count); ++i) {
        collected->values[first + i] = values[i];
        ++collected->calls[first + i];
      }
    };
    return;
  }
  if (s.unreduced) {
    output = poisoned(n * s.shape.top_k * s.shape.hidden * static_cast<std::int64_t>(size_of(s.output_dtype)));
    combine_out.tokens = Tensor(output.data(), s.output_dtype, {n, s.shape.top_k, s.shape.hidden});
  } else {
    output = poisoned(strided_bytes(s.output_dtype, n, s.shape.hidden, s.output_gap));
    combine_out.tokens = strided<void>(output.data(), s.output_dtype, n, s.shape.hidden, s.output_gap);
  }
}

}  // namespace ferry::conformance
