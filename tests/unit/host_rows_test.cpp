// decode_row and HostRows: the values of a row are those of its token, encoded and decoded alone, in every format and
// layout.
#include "ferry/rows/host_rows.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "conformance/oracle/oracle.h"
#include "support/own_formats.h"

namespace ferry {
namespace {

constexpr Shape kShape{.ranks = 2, .experts = 6, .top_k = 3, .max_tokens = 70, .hidden = 288};
constexpr float kInputScale = 2.5f;

std::vector<float> tokens_of(int rank) {
  std::mt19937 engine(static_cast<unsigned>(rank) + 1);
  std::normal_distribution<float> normal;
  std::vector<float> tokens(static_cast<std::size_t>(kShape.max_tokens) * kShape.hidden);
  for (float& value : tokens) value = normal(engine);
  return tokens;
}

// With dynamic_scales a token is encoded with a scale g of its own, and 1 / g comes with its rows.
std::vector<float> encoded_and_decoded(const ExchangeOptions& options, const float* token) {
  const AnyFormat& format = options.format;
  const auto scale_bytes = static_cast<std::size_t>(scales_per_row(format, kShape.hidden) * format.scale_bytes());
  std::vector<std::byte> payload(format.payload_bytes(kShape.hidden));
  std::vector<std::byte> scales(scale_bytes);
  std::vector<float> values(static_cast<std::size_t>(kShape.hidden));
  const InputRow row{token, DType::f32};
  const float own = options.dynamic_scales ? test::dynamic_scale(row, kShape.hidden) : 1.0f;
  format.encode({}, row, kShape.hidden, options.dynamic_scales ? own : kInputScale, payload.data(), scales.data());
  format.decode({}, payload.data(), scales.data(), kShape.hidden, options.dynamic_scales ? 1.0f : kInputScale,
                values.data());
  for (float& value : values) value *= 1.0f / own;
  return values;
}

void expect_values_of_tokens(const ExchangeOptions& options) {
  SCOPED_TRACE(std::string(options.format.name()) + (options.tiled_scales ? ", tiled" : ""));
  run_ranks(kShape.ranks, [&](World& world) {
    Exchange exchange(world, kShape, options);
    HostRows rows(exchange);
    const std::vector<float> tokens = tokens_of(world.rank());
    const float scale = options.dynamic_scales ? 1.0f : kInputScale;
    std::vector<std::int32_t> ids;
    for (int token = 0; token < kShape.max_tokens; ++token)
      for (int k = 0; k < kShape.top_k; ++k) ids.push_back((token + 2 * k) % kShape.experts);
    exchange.dispatch({.tokens = {tokens.data(), DType::f32, {kShape.max_tokens, kShape.hidden}},
                       .topk_ids = {ids.data(), DType::i32, {kShape.max_tokens, kShape.top_k}},
                       .input_scale = options.dynamic_scales ? nullptr : &kInputScale},
                      rows.arrivals());
    const int local = num_local_experts(kShape, world.rank());
    int seen = 0;
    rows.for_each_row([&](int group, std::int64_t row) {
      // Rows of an expert are in the order of their source ranks, each of which names it equally often.
      const auto* src_info = rows.arrivals().src_info.as<std::int32_t>();
      const std::int64_t in_group = row - rows.begin_row(group);
      std::int64_t of_one_source = 0;
      while (src_info[2 * (rows.begin_row(group) + of_one_source) + 2] >
             src_info[2 * (rows.begin_row(group) + of_one_source)])
        ++of_one_source;
      const int source = in_group <= of_one_source ? 0 : 1;
      const std::vector<float> of_source = tokens_of(source);
      const float* token = of_source.data() + std::ptrdiff_t{src_info[2 * row]} * kShape.hidden;
      EXPECT_EQ(rows.values(row, scale), encoded_and_decoded(options, token)) << "row " << row;
      ++seen;
    });
    EXPECT_EQ(seen, kShape.ranks * kShape.max_tokens * kShape.top_k * local / kShape.experts);
  });
}

TEST(DecodeRow, GivesTheValuesOfTheTokenInEveryFormatAndLayout) {
  for (const AnyFormat& format : all_formats()) expect_values_of_tokens({.format = format});
  expect_values_of_tokens({.format = format_named("mxfp8"), .tiled_scales = true});
  expect_values_of_tokens({.format = format_named("fp8_block128"), .expert_alignment = 128});
  expect_values_of_tokens({.format = format_named("nvfp4"), .dynamic_scales = true});
}

TEST(DecodeRow, TakesFormatsOfTheCaller) {
  expect_values_of_tokens({.format = any_format<Int8Block64>()});
  expect_values_of_tokens({.format = any_format<test::Int8Transposed>()});
  expect_values_of_tokens({.format = any_format<test::Int8Tiled>()});
}

// The text with which decode_row refuses; "no error" if it does not.
std::string refusal_of(const AnyFormat& format, const RowLayout& layout, const DispatchOutput& output, std::int64_t row,
                       std::span<float> to) {
  try {
    decode_row(format, layout, output, row, to);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
  return "no error";
}

TEST(DecodeRow, RefusesWhatDoesNotFit) {
  const ExchangeOptions options{.format = format_named("mxfp8"), .tiled_scales = true};
  const RowLayout layout = row_layout(kShape, options, 0);
  const HostRows rows(options.format, layout, layout.min_row_capacity);
  std::vector<float> values(static_cast<std::size_t>(kShape.hidden));
  const auto refused = [&](const DispatchOutput& output, std::int64_t row, std::span<float> to,
                           const AnyFormat& format) { return refusal_of(format, layout, output, row, to); };
  using testing::HasSubstr;
  const DispatchOutput& whole = rows.arrivals();
  EXPECT_THAT(refused(whole, -1, values, options.format), HasSubstr("row is -1; it must be 0 to "));
  EXPECT_THAT(refused(whole, layout.min_row_capacity, values, options.format), HasSubstr("it must be 0 to "));
  EXPECT_THAT(refused(whole, 0, std::span(values).first(7), options.format), HasSubstr("values has 7 elements"));
  EXPECT_THAT(refused(whole, 0, values, format_named("mxfp4")), HasSubstr("another format than mxfp4"));
  EXPECT_THAT(refused(whole, 0, values, options.format), HasSubstr("this dispatch laid out 0"));
}

TEST(DecodeRow, RefusesRowsWithoutTheScalesOfTheirTokens) {
  const AnyFormat format = format_named("nvfp4");
  const RowLayout layout = row_layout(kShape, {.format = format, .dynamic_scales = true}, 0);
  const HostRows rows(format, layout, layout.min_row_capacity);
  std::vector<float> values(static_cast<std::size_t>(kShape.hidden));
  DispatchOutput output = rows.arrivals();
  std::fill_n(output.row_offsets.as<std::uint32_t>() + 1, layout.groups, 1u);  // one row came
  EXPECT_EQ(refusal_of(format, layout, output, 0, values), "no error");
  output.global_scales = {};
  EXPECT_THAT(refusal_of(format, layout, output, 0, values), testing::HasSubstr("global_scales is not given"));
}

TEST(DecodeRow, TakesTheScalesOfTokensAsFloat32OrBf16) {
  const AnyFormat format = format_named("nvfp4");
  const RowLayout layout = row_layout(kShape, {.format = format, .dynamic_scales = true}, 0);
  const HostRows rows(format, layout, layout.min_row_capacity);
  DispatchOutput output = rows.arrivals();
  std::fill_n(output.row_offsets.as<std::uint32_t>() + 1, layout.groups, 1u);
  std::memset(output.payload.data, 0x22, static_cast<std::size_t>(layout.payload_row_bytes));  // codes of 1
  std::memset(output.scales.data, 0x38, static_cast<std::size_t>(output.scales.elements()));   // scales of 1
  std::vector<float> wide(static_cast<std::size_t>(layout.min_row_capacity), 2.5f);
  std::vector<std::uint16_t> narrow(wide.size() + 1, 0x4020);
  for (const Tensor& scales : {Tensor(wide.data(), DType::f32, {layout.min_row_capacity}),
                               Tensor(narrow.data(), DType::bf16, {layout.min_row_capacity}),
                               Tensor(narrow.data() + 1, DType::bf16, {layout.min_row_capacity})}) {
    output.global_scales = scales;
    std::vector<float> values(static_cast<std::size_t>(kShape.hidden));
    decode_row(format, layout, output, 0, values);
    EXPECT_EQ(values, std::vector<float>(values.size(), 2.5f)) << to_string(scales.dtype);
  }
  output.global_scales.dtype = DType::f16;
  std::vector<float> values(static_cast<std::size_t>(kShape.hidden));
  EXPECT_THAT(refusal_of(format, layout, output, 0, values), testing::HasSubstr("global_scales is f16"));
}

// One byte for each column here and there; the scales differ.
TEST(DecodeRow, RefusesAFormatWithTheSamePayloadAndOtherScales) {
  const AnyFormat format = format_named("mxfp8");
  const RowLayout layout = row_layout(kShape, {.format = format}, 0);
  const HostRows rows(format, layout, layout.min_row_capacity);
  std::vector<float> values(static_cast<std::size_t>(kShape.hidden));
  EXPECT_THAT(refusal_of(format_named("fp8_block128"), layout, rows.arrivals(), 0, values),
              testing::HasSubstr("another format than fp8_block128"));
}

TEST(DecodeRow, RefusesTensorsThatDoNotFitTheLayout) {
  const ExchangeOptions options{.format = format_named("mxfp8"), .tiled_scales = true};
  const RowLayout layout = row_layout(kShape, options, 0);
  const HostRows rows(options.format, layout, layout.min_row_capacity);
  std::vector<float> values(static_cast<std::size_t>(kShape.hidden));
  std::vector<std::uint32_t> ends(static_cast<std::size_t>(layout.groups) + 1, 200);
  std::vector<std::uint32_t> tiles(static_cast<std::size_t>(layout.groups));
  ends[0] = 0;  // all rows are of group 0
  const auto expect_refused = [&](const std::function<void(DispatchOutput&)>& spoil, const char* part) {
    DispatchOutput output = rows.arrivals();
    output.row_offsets.data = ends.data();
    output.scales_offsets.data = tiles.data();
    EXPECT_EQ(refusal_of(options.format, layout, output, 7, values), "no error");
    spoil(output);
    EXPECT_THAT(refusal_of(options.format, layout, output, 7, values), testing::HasSubstr(part));
  };
  expect_refused([](DispatchOutput& o) { o.scales = {}; }, "scales is not given");
  expect_refused([](DispatchOutput& o) { o.payload.device = Device::cuda(1); }, "payload lies on cuda:1");
  expect_refused([](DispatchOutput& o) { o.payload.dtype = DType::f32; }, "payload is f32 [");
  expect_refused([](DispatchOutput& o) { o.payload.shape[1] -= 1; }, "payload is u8 [");
  expect_refused([](DispatchOutput& o) { o.payload.rank = 1; }, "payload is u8 [");
  expect_refused([](DispatchOutput& o) { o.payload.strides[0] += 1; }, "payload is not contiguous");
  expect_refused([](DispatchOutput& o) { o.scales.shape[0] -= 1; }, "scales is u8 [");
  expect_refused([](DispatchOutput& o) { o.scales.dtype = DType::f32; }, "scales is f32 [");
  expect_refused([](DispatchOutput& o) { o.scales.strides[0] += 1; }, "scales is not contiguous");
  expect_refused([](DispatchOutput& o) { o.row_offsets.shape[0] -= 1; }, "row_offsets is u32 [");
  expect_refused([](DispatchOutput& o) { o.row_offsets.dtype = DType::i64; }, "row_offsets is i64 [");
  expect_refused([](DispatchOutput& o) { o.row_offsets.data = static_cast<std::byte*>(o.row_offsets.data) + 1; },
                 "row_offsets starts at 0x");
  expect_refused([](DispatchOutput& o) { o.scales_offsets.shape[0] += 1; }, "scales_offsets is u32 [");
  expect_refused([&](DispatchOutput&) { tiles[0] = 1'000'000; }, "scales_offsets of group 0 is 1000000");
}

TEST(HostRows, HoldResultsForCombine) {
  run_ranks(kShape.ranks, [](World& world) {
    Exchange exchange(world, kShape, {.format = format_named("fp8_block128")});
    HostRows rows(exchange);
    const std::vector<float> tokens(static_cast<std::size_t>(kShape.hidden), 1.0f);
    const std::vector<std::int32_t> ids = {0, 3, 5};
    exchange.dispatch(
        {.tokens = {tokens.data(), DType::f32, {1, kShape.hidden}}, .topk_ids = {ids.data(), DType::i32, {1, 3}}},
        rows.arrivals());
    rows.for_each_row([&](int group, std::int64_t row) {
      std::fill_n(rows.result(row), kShape.hidden, static_cast<float>(first_expert(kShape, world.rank()) + group));
    });
    std::vector<float> sums(static_cast<std::size_t>(kShape.hidden));
    exchange.combine(rows.results(), {.tokens = {sums.data(), DType::f32, {1, kShape.hidden}}});
    EXPECT_THAT(sums, testing::Each(8.0f));
  });
}

}  // namespace
}  // namespace ferry
