// Orders of rows: their names and sets, what each asks for, and the list of what does not go together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "exchange/checks/row_order_rules.h"
#include "exchange/checks/valid_options.h"
#include "exchange/sizes/sizes.h"

namespace ferry {
namespace {

using testing::HasSubstr;

constexpr Shape kShape{.ranks = 2, .experts = 6, .top_k = 2, .max_tokens = 8, .hidden = 256};
constexpr RowOrders kAll{RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
  return {};
}

TEST(RowOrders, AreSets) {
  constexpr RowOrders none;
  EXPECT_TRUE(none.is_empty());
  EXPECT_EQ(to_string(none), "none");
  EXPECT_EQ(to_string(kAll), "by_expert, by_source, padded, in_place");
  EXPECT_EQ(RowOrders::of_bits(kAll.bits()), kAll);
  EXPECT_FALSE(kUsualRowOrders.has(RowOrder::by_source)) << "it changes what travels";
  EXPECT_FALSE(ExchangeOptions{}.row_orders.is_empty());
}

// Options with which a rule applies.
ExchangeOptions options_of(const RowOrderRule& rule) {
  for (const bool exact : {false, true}) {
    for (const bool shared : {false, true}) {
      ExchangeOptions options;
      options.reduction = exact ? Reduction::exact : Reduction::by_rank;
      options.fused_shared_expert = shared;
      if (rule.is_on(options)) return options;
    }
  }
  ADD_FAILURE() << "no options here have " << rule.option;
  return {};
}

// Every line of the list is refused, where it says, with the order, the option and the reason.
TEST(RowOrderRules, AreRefusedOneByOne) {
  ASSERT_FALSE(row_order_rules().empty());
  for (const RowOrderRule& rule : row_order_rules()) {
    ExchangeOptions options = options_of(rule);
    if (rule.at_exchange) options.row_orders = {RowOrder::by_expert, rule.order};
    std::string text;
    if (rule.at_exchange) {
      text = refusal([&] { require_valid(kShape, options); });
    } else {
      const RowLayout layout = row_layout(kShape, options, 0);
      DispatchInput in;
      in.row_order = rule.order;
      text = refusal([&] { check_row_order({0, kShape, options, layout}, in); });
    }
    EXPECT_THAT(text, HasSubstr(to_string(rule.order)));
    EXPECT_THAT(text, HasSubstr(rule.option));
    EXPECT_THAT(text, HasSubstr(rule.why));
  }
}

// ... and what is not in the list is taken.
TEST(RowOrderRules, RefuseNothingElse) {
  for (int i = 0; i < kRowOrders; ++i) {
    const auto order = static_cast<RowOrder>(i);
    for (const bool exact : {false, true}) {
      for (const bool shared : {false, true}) {
        for (const bool skip : {false, true}) {
          ExchangeOptions options;
          options.reduction = exact ? Reduction::exact : Reduction::by_rank;
          options.fused_shared_expert = shared;
          options.skip_a2a = skip;
          options.allreduce_world_size = skip && shared ? 2 : 1;
          bool refused = false;
          for (const RowOrderRule& rule : row_order_rules())
            refused = refused || (rule.order == order && rule.is_on(options));
          if (refused) continue;
          options.row_orders = {order};
          const RowLayout layout = row_layout(kShape, options, 0);
          DispatchInput in;
          in.row_order = order;
          EXPECT_EQ(check_row_order({0, kShape, options, layout}, in).order, order);
        }
      }
    }
  }
}

TEST(RowOrderRules, RefuseAnEmptySet) {
  ExchangeOptions options;
  options.row_orders = {};
  EXPECT_THAT(refusal([&] { require_valid(kShape, options); }), HasSubstr("row_orders is empty"));
}

struct Output {
  DType dtype;
  std::vector<std::int64_t> shape;
};

void expect_outputs(const char* format, RowOrder order, std::int64_t stride,
                    const std::map<std::string, Output>& expected) {
  ExchangeOptions options{.format = format_named(format), .row_orders = kAll};
  const RowLayout layout = row_layout(kShape, options, 0);
  const std::int64_t capacity = layout.least_rows(order, stride);
  std::vector<std::vector<std::byte>> memory;
  DispatchOutput out;
  const std::vector<TensorSpec> specs = dispatch_outputs(layout, capacity, order, stride);
  EXPECT_EQ(specs.size(), expected.size());
  for (const TensorSpec& spec : specs) {
    SCOPED_TRACE(std::string(to_string(order)) + " " + spec.name);
    ASSERT_TRUE(expected.contains(spec.name));
    EXPECT_EQ(spec.dtype, expected.at(spec.name).dtype);
    EXPECT_EQ(spec.shape, expected.at(spec.name).shape);
    out.*spec.field = {memory.emplace_back(spec.bytes()).data(), spec.dtype, spec.shape};
  }
  EXPECT_NO_THROW(check_dispatch_output({0, kShape, options, layout}, out, {order, stride}));
  const std::int64_t too_few = order == RowOrder::padded ? capacity - 1 : -1;
  EXPECT_THAT(refusal([&] { dispatch_outputs(layout, too_few, order, stride); }), HasSubstr("row_capacity"));
}

// 2 ranks of up to 8 tokens; 3 experts here.
TEST(RowOrders, HaveTheOutputsOfTheTable) {
  expect_outputs("fp8_block128", RowOrder::padded, 20,
                 {{"payload", {DType::u8, {60, 256}}},
                  {"scales", {DType::f32, {3, 2, 20}}},
                  {"row_offsets", {DType::u32, {4}}},
                  {"expert_ids", {DType::i32, {3}}},
                  {"src_info", {DType::i32, {60, 2}}},
                  {"counts", {DType::i32, {3}}}});
  expect_outputs("fp8_block128", RowOrder::by_source, 0,
                 {{"payload", {DType::u8, {16, 256}}},
                  {"scales", {DType::f32, {2, 16}}},
                  {"src_info", {DType::i32, {16, 2}}},
                  {"counts", {DType::i32, {3}}},
                  {"row_topk_ids", {DType::i32, {16, 2}}},
                  {"row_topk_weights", {DType::f32, {16, 2}}},
                  {"source_offsets", {DType::u32, {3}}}});
  expect_outputs("bf16", RowOrder::in_place, 0,
                 {{"row_offsets", {DType::u32, {4}}},
                  {"expert_ids", {DType::i32, {3}}},
                  {"src_info", {DType::i32, {32, 2}}},
                  {"gather", {DType::i32, {32}}}});
}

}  // namespace
}  // namespace ferry
