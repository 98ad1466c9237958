#include "conformance/rounds/more_outputs.h"

#include <algorithm>
#include <cstring>

#include "conformance/oracle/size.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {
namespace {

constexpr std::size_t kGuard = 16;             // words behind every output; must stay as they were
constexpr std::int32_t kCountBefore = 70'000;  // in cumulative_counts
constexpr std::int64_t kWaitedBefore = 123'456'789'012;

using test::size;

template <class T>
std::vector<std::int32_t> words_of(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

// 2^(code - 127) without the bits that the exchange takes it from.
float number_of(std::byte code) {
  const int exponent = std::to_integer<int>(code) - 127;
  float value = 1.0f;
  for (int i = 0; i < exponent; ++i) value *= 2.0f;
  for (int i = 0; i > exponent; --i) value *= 0.5f;
  return value;
}

}  // namespace

MoreOutputs::MoreOutputs(const Scenario& scenario, int rank)
    : scenario_(scenario), rank_(rank), rows_(scenario.rows[size(rank)]), capacity_(scenario.row_capacity[size(rank)]) {
  using Out = DispatchOutput;
  const ScenarioSettings& s = scenario.settings;
  const test::ExpectedMore more = test::expected_more(scenario.round, rank, rows_, capacity_);
  const std::int64_t groups = test::num_groups(scenario.round, rank), sources = s.options.skip_a2a ? 1 : s.shape.ranks;
  const bool by_source = scenario.round.ranks[size(rank)].row_order == RowOrder::by_source;
  add("source_starts", &Out::source_starts, DType::i32, {groups, sources}, more.source_starts);
  if (!by_source) {
    add("row_weights", &Out::row_weights, DType::f32, {capacity_}, more.row_weights);
    add("row_sources", &Out::row_sources, DType::i32, {capacity_}, more.row_sources);
    add("source_offsets", &Out::source_offsets, DType::u32, {sources + 1}, words_of(more.source_offsets));
    add("counts", &Out::counts, DType::i32, {groups}, rows_.counts);
  }
  const std::int64_t columns = 2 + s.shape.top_k;
  const auto came = static_cast<std::int64_t>(more.messages.size()) / columns;
  const std::int64_t most = sources * s.shape.max_tokens;
  const std::int64_t lines =
      s.overflow == Overflow::refused ? std::min(capacity_, most) : std::max<std::int64_t>(came - 2, 0);
  std::vector<std::int32_t> messages = more.messages;
  messages.resize(size(lines * columns), -1);
  add("messages", &Out::messages, DType::i32, {lines, columns}, messages);
  add("overflow", &Out::overflow, DType::i32, {1}, {more.overflow});
  add("cumulative_counts", &Out::cumulative_counts, DType::i32, {groups}, rows_.counts);
  Words& sums = words_.back();
  for (std::size_t i = 0; i < size(groups); ++i)
    sums.expected[i] += sums.got[i] = kCountBefore + static_cast<std::int32_t>(i);
  waited_ns_.assign(size(sources), kWaitedBefore);
  if (s.scale_form != ScaleForm::none && scenario.round.ranks[size(rank)].row_order != RowOrder::in_place)
    add_row_scales();
}

void MoreOutputs::add(const char* name, Tensor DispatchOutput::*field, DType dtype, std::vector<std::int64_t> shape,
                      std::vector<std::int32_t> expected) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  expected.resize(size(count) + kGuard, test::kUntouched);
  std::vector<std::int32_t> got(expected.size(), test::kUntouched);
  words_.push_back({name, field, std::move(shape), dtype, std::move(expected), std::move(got)});
}

// Side by side, or transposed with a gap between columns.
void MoreOutputs::add_row_scales() {
  const ScenarioSettings& s = scenario_.settings;
  const RowLayout layout = row_layout(s.shape, s.options, rank_);
  if (layout.scales_per_row == 0) return;
  scale_dtype_ = s.scale_form == ScaleForm::numbers          ? DType::f32
                 : s.scale_form == ScaleForm::groups_of_four ? DType::i32
                                                             : layout.scale_dtype;
  columns_ = s.scale_form == ScaleForm::groups_of_four ? (layout.scales_per_row + 3) / 4 : layout.scales_per_row;
  const auto width = static_cast<std::int64_t>(size_of(scale_dtype_));
  const bool is_padded = scenario_.round.ranks[size(rank_)].row_order == RowOrder::padded;
  const std::int64_t stride = is_padded ? test::expert_stride_of(scenario_.round, rank_) : 0;
  const bool has_groups = is_padded && s.scale_form != ScaleForm::rows;
  const std::int64_t rows = has_groups ? stride : capacity_, gap = 3;
  const bool transposed = s.scale_form != ScaleForm::rows;
  row_stride_ = (transposed ? 1 : columns_ + gap) * width;
  column_stride_ = (transposed ? rows + gap : 1) * width;
  group_rows_ = has_groups ? stride : 0;
  group_stride_ = has_groups ? columns_ * column_stride_ : 0;
  const std::int64_t groups = has_groups ? layout.groups : 1;
  const std::int64_t bytes = transposed ? groups * columns_ * (rows + gap) * width : rows * row_stride_;
  scales_.assign(size(bytes) + kGuard * 4, kPoison);
}

void MoreOutputs::give(DispatchOutput& out) {
  for (Words& words : words_)
    out.*words.field = Tensor(words.got.data(), words.dtype, std::span<const std::int64_t>(words.shape));
  out.waited_ns = Tensor(waited_ns_.data(), DType::i64, {static_cast<std::int64_t>(waited_ns_.size())});
  if (scales_.empty()) return;
  const auto width = static_cast<std::int64_t>(size_of(scale_dtype_));
  if (group_rows_ != 0) {
    const std::int64_t groups = test::num_groups(scenario_.round, rank_);
    out.row_scales = Tensor(scales_.data(), scale_dtype_, {groups, group_rows_, columns_});
    out.row_scales.strides[0] = group_stride_ / width;
  } else {
    out.row_scales = Tensor(scales_.data(), scale_dtype_, {capacity_, columns_});
  }
  out.row_scales.strides[out.row_scales.rank - 2] = row_stride_ / width;
  out.row_scales.strides[out.row_scales.rank - 1] = column_stride_ / width;
  if (scenario_.settings.scale_form != ScaleForm::rows) out.scales = out.scales_offsets = {};  // in place of them
}

std::vector<MoreOutputs::Memory> MoreOutputs::memory() {
  std::vector<Memory> all;
  for (Words& words : words_) all.push_back({words.field, std::as_writable_bytes(std::span(words.got))});
  all.push_back({&DispatchOutput::waited_ns, std::as_writable_bytes(std::span(waited_ns_))});
  if (!scales_.empty()) all.push_back({&DispatchOutput::row_scales, std::span(scales_)});
  return all;
}

void MoreOutputs::put_expected_scales(std::size_t row, std::byte* to) const {
  const std::vector<std::byte> scales = test::expected_row_scales(scenario_.round, rank_, rows_, row);
  if (scales.empty()) return;
  const auto width = static_cast<std::int64_t>(size_of(scale_dtype_));
  const std::size_t groups_before = group_rows_ == 0 ? 0 : row / size(group_rows_);
  const std::size_t in_group = row - groups_before * size(group_rows_);
  to += groups_before * size(group_stride_) + in_group * size(row_stride_);
  const bool is_padding = row >= rows_.rows.size() || test::is_padding(rows_.rows[row]);
  for (std::int64_t column = 0; column < columns_; ++column, to += column_stride_) {
    if (scenario_.settings.scale_form == ScaleForm::numbers) {
      const float value = is_padding ? 0.0f : number_of(scales[size(column)]);
      std::memcpy(to, &value, sizeof value);
    } else if (scenario_.settings.scale_form == ScaleForm::groups_of_four) {
      std::byte four[4] = {};
      for (std::size_t i = 0; i < 4 && size(4 * column) + i < scales.size(); ++i)
        four[i] = scales[size(4 * column) + i];
      std::memcpy(to, four, 4);
    } else {
      std::memcpy(to, scales.data() + column * width, size(width));
    }
  }
}

void MoreOutputs::check() const {
  for (const Words& words : words_)
    for (std::size_t i = 0; i < words.got.size(); ++i)
      expect_equal(rank_, std::string(words.name) + " word " + std::to_string(i), std::to_string(words.expected[i]),
                   std::to_string(words.got[i]));
  for (const std::int64_t waited : waited_ns_)
    expect_equal(rank_, "waited_ns: grows, by less than a minute (1: yes)", 1,
                 waited >= kWaitedBefore && waited < kWaitedBefore + 60'000'000'000 ? 1 : 0);
  std::vector<std::byte> expected(scales_.size(), kPoison);
  for (std::size_t row = 0; !expected.empty() && row < size(capacity_); ++row)
    put_expected_scales(row, expected.data());
  for (std::size_t i = 0; i < expected.size(); ++i)
    expect_equal(rank_, "row_scales byte " + std::to_string(i), std::to_integer<unsigned>(expected[i]),
                 std::to_integer<unsigned>(scales_[i]));
}

void MoreOutputs::check_untouched() const {
  for (const Words& words : words_)
    for (std::size_t i = 0; i < words.got.size(); ++i) {
      const bool counts = words.field == &DispatchOutput::cumulative_counts && i + kGuard < words.got.size();
      const std::int32_t before = counts ? kCountBefore + static_cast<std::int32_t>(i) : test::kUntouched;
      expect_equal(rank_, std::string(words.name) + ", untouched", std::to_string(before),
                   std::to_string(words.got[i]));
    }
  for (const std::int64_t waited : waited_ns_)
    expect_equal(rank_, "waited_ns, untouched", std::to_string(kWaitedBefore), std::to_string(waited));
  for (const std::byte each : scales_)
    expect_equal(rank_, "row_scales, untouched (1: yes)", 1, each == kPoison ? 1 : 0);
}

}  // namespace ferry::conformance
