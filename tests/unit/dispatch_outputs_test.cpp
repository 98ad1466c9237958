// dispatch_outputs: the table of exchange.h, format by format, and that a dispatch takes what the list says.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "exchange/checks/validate.h"

namespace ferry {
namespace {

constexpr Shape kShape{.ranks = 2, .experts = 6, .top_k = 2, .max_tokens = 8, .hidden = 256};
constexpr std::int64_t kCapacity = 600;

struct Row {
  DType dtype;
  std::vector<std::int64_t> shape;
  std::size_t alignment;
};
using Table = std::map<std::string, Row>;

// What every format has, for 3 groups.
Table common(std::int64_t groups = 3) {
  return {{"row_offsets", {DType::u32, {groups + 1}, 4}},
          {"expert_ids", {DType::i32, {groups}, 4}},
          {"src_info", {DType::i32, {kCapacity, 2}, 4}}};
}

void expect_table(const ExchangeOptions& options, const Table& expected) {
  const std::vector<TensorSpec> specs = dispatch_outputs(row_layout(kShape, options, 0), kCapacity);
  EXPECT_EQ(specs.size(), expected.size());
  for (const TensorSpec& spec : specs) {
    SCOPED_TRACE(std::string(options.format.name()) + " " + spec.name);
    ASSERT_TRUE(expected.contains(spec.name));
    const Row& row = expected.at(spec.name);
    EXPECT_EQ(spec.dtype, row.dtype);
    EXPECT_EQ(spec.shape, row.shape);
    EXPECT_EQ(spec.alignment, row.alignment);
    EXPECT_EQ(spec.bytes(),
              static_cast<std::size_t>(Tensor(nullptr, row.dtype, row.shape).elements()) * size_of(row.dtype));
  }
}

TEST(DispatchOutputs, AreThoseOfTheTable) {
  Table table = common();
  table["payload"] = {DType::bf16, {kCapacity, 256}, 16};
  expect_table({.format = format_named("bf16")}, table);

  table["payload"] = {DType::u8, {kCapacity, 256}, 16};
  table["scales"] = {DType::f32, {2, kCapacity}, 4};
  expect_table({.format = format_named("fp8_block128")}, table);

  table["scales"] = {DType::u8, {kCapacity, 8}, 1};
  expect_table({.format = format_named("mxfp8")}, table);

  // 128-row tiles, one more for each group, in place of rows.
  table["scales"] = {DType::u8, {kCapacity / 128 + 1 + 3, 2, 32, 4, 4}, 16};
  table["scales_offsets"] = {DType::u32, {3}, 4};
  expect_table({.format = format_named("mxfp8"), .tiled_scales = true}, table);

  table["payload"] = {DType::u8, {kCapacity, 128}, 16};
  table["scales"] = {DType::u8, {kCapacity / 128 + 1 + 3, 4, 32, 4, 4}, 16};
  expect_table({.format = format_named("nvfp4")}, table);
}

TEST(DispatchOutputs, HaveAGroupMoreWithASharedExpert) {
  Table table = common(4);
  table["payload"] = {DType::bf16, {kCapacity, 256}, 16};
  expect_table({.format = format_named("bf16"), .fused_shared_expert = true}, table);
}

TEST(DispatchOutputs, AreTakenByADispatch) {
  for (const AnyFormat& format : all_formats()) {
    SCOPED_TRACE(format.name());
    const ExchangeOptions options{.format = format};
    const RowLayout layout = row_layout(kShape, options, 0);
    std::vector<std::vector<std::byte>> memory;
    DispatchOutput out;
    for (const TensorSpec& spec : dispatch_outputs(layout, layout.min_row_capacity))
      out.*spec.field = {memory.emplace_back(spec.bytes()).data(), spec.dtype, spec.shape};
    EXPECT_NO_THROW(check_dispatch_output({0, kShape, options, layout}, out));
  }
}

constexpr RowOrder kOrders[] = {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};

std::string names_of(const std::vector<TensorSpec>& specs) {
  std::string names;
  for (const TensorSpec& spec : specs)
    names += std::string(names.empty() ? "" : " ") + spec.name + (spec.is_optional ? "?" : "");
  return names;
}

TEST(DispatchOutputs, AreTheSameListForEveryReader) {
  const RowLayout layout = row_layout(kShape, {.format = format_named("nvfp4")}, 0);
  const auto list = [&](RowOrder order, OutputList which) {
    return names_of(dispatch_outputs(layout, layout.least_rows(order), order, 0, which));
  };
  const std::string statistics = " overflow? cumulative_counts? waited_ns?";
  EXPECT_EQ(list(RowOrder::by_expert, OutputList::usual),
            "payload scales row_offsets? expert_ids? src_info? scales_offsets");
  EXPECT_EQ(list(RowOrder::by_expert, OutputList::all),
            "payload scales row_offsets? expert_ids? src_info? scales_offsets handle? counts? source_offsets? "
            "source_starts? row_weights? row_sources? messages? row_scales?" +
                statistics);
  EXPECT_EQ(list(RowOrder::padded, OutputList::usual),
            "payload scales row_offsets? expert_ids? src_info? scales_offsets counts");
  EXPECT_EQ(list(RowOrder::by_source, OutputList::usual),
            "payload scales src_info? counts? row_topk_ids? row_topk_weights? source_offsets");
  EXPECT_EQ(list(RowOrder::by_source, OutputList::all),
            "payload scales src_info? handle? counts? row_topk_ids? row_topk_weights? source_offsets source_starts? "
            "messages? row_scales?" +
                statistics);
  EXPECT_EQ(list(RowOrder::in_place, OutputList::all),
            "row_offsets? expert_ids? src_info? handle? counts? source_offsets? gather source_starts? row_weights? "
            "row_sources? messages?" +
                statistics);
}

// All of the list, in every order; and a world without them refuses each by its name.
TEST(DispatchOutputs, ThatMayBeLeftOutAreTakenOrRefusedByName) {
  for (const RowOrder order : kOrders) {
    const ExchangeOptions options{.format = format_named("mxfp8")};
    const RowLayout layout = row_layout(kShape, options, 0);
    const RowChoice choice{order, order == RowOrder::padded ? layout.expert_rows : 0};
    const CheckContext takes{0, kShape, options, layout};
    CheckContext refuses = takes;
    refuses.more_outputs = false;
    std::vector<std::vector<std::byte>> memory;
    DispatchOutput out;
    const auto give = [&](const TensorSpec& spec) {
      out.*spec.field = {memory.emplace_back(spec.bytes()).data(), spec.dtype, spec.shape};
    };
    const auto usual = dispatch_outputs(layout, layout.least_rows(order), order);
    for (const TensorSpec& spec : usual) give(spec);
    EXPECT_NO_THROW(check_dispatch_output(refuses, out, choice));
    for (const TensorSpec& spec : dispatch_outputs(layout, layout.least_rows(order), order, 0, OutputList::all)) {
      const bool is_usual =
          std::any_of(usual.begin(), usual.end(), [&](const auto& of) { return of.field == spec.field; });
      if (is_usual || spec.field == &DispatchOutput::handle) continue;
      give(spec);
      EXPECT_NO_THROW(check_dispatch_output(takes, out, choice)) << spec.name;
      try {
        check_dispatch_output(refuses, out, choice);
        ADD_FAILURE() << spec.name;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::unsupported);
        EXPECT_NE(std::string(error.what()).find(spec.name), std::string::npos) << error.what();
      }
      out.*spec.field = {};
    }
  }
}

// What a dispatch needs is taken without the rest; without one of them, or with one of the rest that is wrong, it is
// refused by name.
TEST(DispatchOutputs, ThatAreNotOptionalAreEnough) {
  for (const RowOrder order : kOrders) {
    const ExchangeOptions options{.format = format_named("nvfp4")};
    const RowLayout layout = row_layout(kShape, options, 0);
    const RowChoice choice{order, order == RowOrder::padded ? layout.expert_rows : 0};
    std::vector<std::vector<std::byte>> memory;
    DispatchOutput needed;
    const auto usual = dispatch_outputs(layout, layout.least_rows(order), order);
    for (const TensorSpec& spec : usual)
      if (!spec.is_optional) needed.*spec.field = {memory.emplace_back(spec.bytes()).data(), spec.dtype, spec.shape};
    const auto refusal = [&](const DispatchOutput& out) -> std::string {
      try {
        check_dispatch_output({0, kShape, options, layout}, out, choice);
      } catch (const Error& error) {
        return error.what();
      }
      return {};
    };
    EXPECT_EQ(refusal(needed), "");
    for (const TensorSpec& spec : usual) {
      DispatchOutput out = needed;
      if (!spec.is_optional) {
        out.*spec.field = {};
        EXPECT_NE(refusal(out).find(spec.name), std::string::npos) << to_string(order) << ": " << spec.name;
        continue;
      }
      out.*spec.field = {memory.emplace_back(spec.bytes()).data(), spec.dtype, spec.shape};
      EXPECT_EQ(refusal(out), "");
      --(out.*spec.field).shape[0];
      EXPECT_NE(refusal(out).find(spec.name), std::string::npos) << to_string(order) << ": " << spec.name;
      (out.*spec.field).rank = 0;  // memory without axes
      EXPECT_NE(refusal(out).find(spec.name), std::string::npos) << to_string(order) << ": " << spec.name;
    }
    DispatchOutput nowhere = needed;
    nowhere.src_info = {nullptr, DType::i32, {layout.least_rows(order), 2}};
    EXPECT_NE(refusal(nowhere).find("src_info is not given"), std::string::npos) << to_string(order);
  }
}

TEST(DispatchOutputs, RefuseWhatADispatchWould) {
  const RowLayout layout = row_layout(kShape, {}, 0);
  const auto refused = [&](std::int64_t row_capacity, RowOrder order, std::int64_t expert_stride = 0,
                           const char* name = "row_capacity") {
    try {
      dispatch_outputs(layout, row_capacity, order, expert_stride);
      ADD_FAILURE() << row_capacity << " rows";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  };
  constexpr std::int64_t kAllRows = INT32_MAX;
  EXPECT_EQ(dispatch_outputs(layout, kAllRows).front().shape[0], kAllRows);
  refused(kAllRows + 1, RowOrder::by_expert);
  refused(std::int64_t{1} << 62, RowOrder::by_source);  // its bytes would be 0 of 64 bits
  refused(kCapacity, RowOrder::padded, std::int64_t{1} << 62, "expert_stride");
  refused(-1, RowOrder::by_expert);
  refused(layout.least_rows(RowOrder::padded) - 1, RowOrder::padded);
}

// What came may be nothing.
TEST(DispatchOutputs, AreAsSmallAsWhatCame) {
  const RowLayout layout = row_layout(kShape, {}, 0);
  for (const std::int64_t rows : {0, 1, 7}) {
    const std::vector<TensorSpec> specs = dispatch_outputs(layout, rows);
    EXPECT_EQ(specs.front().shape[0], rows);
    EXPECT_EQ(specs.front().bytes() == 0, rows == 0);
  }
}

}  // namespace
}  // namespace ferry
