// What a call refuses before anything moves, one argument at a time: the name, the value and the limit are in the text.
#include "exchange/checks/validate.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace ferry {
namespace {

constexpr Shape kShape{.ranks = 2, .experts = 6, .top_k = 2, .max_tokens = 4, .hidden = 32};

struct Call {
  explicit Call(const char* format = "fp8_block128", Reduction reduction = Reduction::by_rank) {
    options.format = format_named(format);
    options.reduction = reduction;
    layout = row_layout(kShape, options, 0);
    capacity = layout.min_row_capacity;
    payload.resize(static_cast<std::size_t>(capacity * layout.payload_row_bytes + 16));
    auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(payload.data()) + 15) / 16 * 16);
    out.payload = Tensor(aligned, DType::u8, {capacity, layout.payload_row_bytes});
    scales.resize(static_cast<std::size_t>(capacity));
    if (layout.scale_dtype == DType::f32) out.scales = Tensor(scales.data(), DType::f32, {1, capacity});
    out.row_offsets = Tensor(offsets.data(), DType::u32, {layout.groups + 1});
    out.expert_ids = Tensor(experts.data(), DType::i32, {layout.groups});
    info.resize(static_cast<std::size_t>(2 * capacity));
    out.src_info = Tensor(info.data(), DType::i32, {capacity, 2});
    in.tokens = ConstTensor(tokens.data(), DType::bf16, {3, 32});
    in.topk_ids = ConstTensor(ids.data(), DType::i32, {3, 2});
    combine_in.rows = ConstTensor(rows.data(), DType::bf16, {5, 32});
    combine_in.src_info = out.src_info;
    combine_out.tokens = Tensor(sums.data(), DType::f32, {3, 32});
  }

  CheckContext context() const { return {1, kShape, options, layout}; }
  void check_dispatch() const {
    const DispatchArgs args = check_dispatch_input(context(), in);
    check_topk_ids(context(), args);
    check_input_scale(context(), in.input_scale);
    check_dispatch_output(context(), out);
  }
  void check_combine() const {
    const CombineArgs sent = check_combine_input(context(), combine_in, 3, 5);
    check_combine_output(context(), combine_out, sent, 3);
  }

  ExchangeOptions options;
  RowLayout layout;
  std::int64_t capacity = 0;
  DispatchInput in;
  DispatchOutput out;
  CombineInput combine_in;
  CombineOutput combine_out;
  std::vector<std::byte> payload;
  std::vector<float> scales;
  std::vector<std::uint32_t> offsets = std::vector<std::uint32_t>(8);
  std::vector<std::int32_t> experts = std::vector<std::int32_t>(8), info, ids = {0, 1, 2, 3, 5, -1};
  std::vector<std::uint16_t> tokens = std::vector<std::uint16_t>(5 * 33), rows = std::vector<std::uint16_t>(5 * 33);
  std::vector<float> sums = std::vector<float>(3 * 3 * 32), weights = std::vector<float>(8);
};

void expect_refused(const Call& call, const std::function<void()>& check, const char* names, const char* value = "") {
  static_cast<void>(call);
  try {
    check();
    ADD_FAILURE() << "not refused: " << names << " " << value;
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    EXPECT_EQ(text.rfind("rank 1: ", 0), 0u) << text;
    EXPECT_NE(text.find(names), std::string::npos) << text;
    EXPECT_NE(text.find(value), std::string::npos) << text;
  }
}
void bad_dispatch(const char* names, const char* value, const std::function<void(Call&)>& spoil,
                  const char* format = "fp8_block128") {
  Call call(format);
  ASSERT_NO_THROW(call.check_dispatch());
  spoil(call);
  expect_refused(
      call, [&] { call.check_dispatch(); }, names, value);
}
void bad_combine(const char* names, const char* value, const std::function<void(Call&)>& spoil,
                 Reduction reduction = Reduction::by_rank) {
  Call call("fp8_block128", reduction);
  ASSERT_NO_THROW(call.check_combine());
  spoil(call);
  expect_refused(
      call, [&] { call.check_combine(); }, names, value);
}

TEST(Validate, RefusesBadTokensAndIds) {
  bad_dispatch("tokens", "not given", [](Call& c) { c.in.tokens = {}; });
  bad_dispatch("tokens", "f64", [](Call& c) { c.in.tokens.dtype = DType::f64; });
  bad_dispatch("tokens", "33", [](Call& c) { c.in.tokens.shape[1] = 33; });
  bad_dispatch("tokens", "max_tokens = 4", [](Call& c) { c.in.tokens.shape[0] = 5; });
  bad_dispatch("tokens", "column stride of 2", [](Call& c) { c.in.tokens.strides[1] = 2; });
  bad_dispatch("tokens", "row stride of 31", [](Call& c) { c.in.tokens.strides[0] = 31; });
  bad_dispatch("tokens", "multiple of 2",
               [](Call& c) { c.in.tokens.data = reinterpret_cast<std::byte*>(c.tokens.data()) + 1; });
  bad_dispatch("topk_ids", "f32", [](Call& c) { c.in.topk_ids.dtype = DType::f32; });
  bad_dispatch("topk_ids", "[3, 2]", [](Call& c) { c.in.topk_ids.shape[0] = 2; });
  bad_dispatch("topk_ids[1, 0]", "6", [](Call& c) { c.ids[2] = 6; });
  bad_dispatch("topk_ids[2, 1]", "-2", [](Call& c) { c.ids[5] = -2; });
  bad_dispatch("topk_ids[1, 1]", "distinct", [](Call& c) { c.ids[3] = 2; });
  bad_dispatch("topk_ids[0, 1]", "distinct", [](Call& c) { c.ids[0] = c.ids[1] = 0; });
}

TEST(Validate, RefusesBadBias) {
  const auto bias = [](Call& c, int index, DType dtype) {
    c.combine_in.bias[index] = ConstTensor(c.sums.data(), dtype, {3, 32});
  };
  bad_combine("bias[0]", "u32", [&](Call& c) { bias(c, 0, DType::u32); });
  bad_combine("bias[1]", "multiple of 4", [&](Call& c) {
    bias(c, 1, DType::f32);
    c.combine_in.bias[1].data = reinterpret_cast<std::byte*>(c.sums.data()) + 2;
  });
  bad_combine("bias[0]", "column stride of 2", [&](Call& c) {
    bias(c, 0, DType::f32);
    c.combine_in.bias[0].strides[1] = 2;
  });
  bad_combine("bias[1]", "one dtype", [&](Call& c) {
    bias(c, 0, DType::bf16);
    bias(c, 1, DType::f32);
  });
  bad_combine(
      "unreduced", "bias",
      [&](Call& c) {
        bias(c, 0, DType::f32);
        c.combine_out.tokens = Tensor(c.sums.data(), DType::f32, {3, 2, 32});
      },
      Reduction::exact);
}

TEST(Validate, RefusesWhatExactDoesNotHave) {
  bad_combine(
      "sum_order", "by_last_k", [](Call& c) { c.combine_in.sum_order = SumOrder::by_last_k; }, Reduction::exact);
  bad_combine(
      "apply_weights", "exact", [](Call& c) { c.combine_in.apply_weights = false; }, Reduction::exact);
}

TEST(Validate, RefusesBadWeightsAndScales) {
  bad_dispatch("topk_weights", "[3, 2]", [](Call& c) {
    c.in.topk_weights = ConstTensor(c.weights.data(), DType::f32, {2, 2});
  });
  bad_dispatch("topk_weights", "both given", [](Call& c) {
    c.in.topk_weights = ConstTensor(c.weights.data(), DType::f32, {3, 2});
    c.in.router_weight = [](void*, int, int) { return 1.0f; };
  });
  for (const float scale :
       {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    bad_dispatch("input_scale", "", [&](Call& c) { c.in.input_scale = &scale; });
  Call exact("fp8_block128", Reduction::exact);
  exact.in.topk_weights = ConstTensor(exact.weights.data(), DType::f32, {3, 2});
  expect_refused(
      exact, [&] { exact.check_dispatch(); }, "topk_weights are given to combine", "exact");
}

// Host memory is wanted here; tests/gpu has the exchanges that want a GPU's.
TEST(Validate, TakesTheTensorsWordForWhereItLies) {
  const Device gpu = Device::cuda(1);
  bad_dispatch("tokens is memory of cuda:1", "host memory", [&](Call& c) { c.in.tokens.device = gpu; });
  bad_dispatch("topk_ids is memory of cuda:1", "", [&](Call& c) { c.in.topk_ids.device = gpu; });
  bad_dispatch("topk_weights is memory of cuda:1", "", [&](Call& c) {
    c.in.topk_weights = ConstTensor(c.weights.data(), DType::f32, {3, 2}, gpu);
  });
  bad_dispatch("payload is memory of cuda:1", "", [&](Call& c) { c.out.payload.device = gpu; });
  bad_dispatch("scales is memory of cuda:1", "", [&](Call& c) { c.out.scales.device = gpu; });
  bad_dispatch("row_offsets is memory of cuda:1", "", [&](Call& c) { c.out.row_offsets.device = gpu; });
  bad_dispatch("expert_ids is memory of cuda:1", "", [&](Call& c) { c.out.expert_ids.device = gpu; });
  bad_dispatch("src_info is memory of cuda:1", "", [&](Call& c) { c.out.src_info.device = gpu; });
  bad_combine("rows is memory of cuda:1", "", [&](Call& c) { c.combine_in.rows.device = gpu; });
  bad_combine("src_info is memory of cuda:1", "", [&](Call& c) { c.combine_in.src_info.device = gpu; });
  bad_combine("tokens is memory of cuda:1", "", [&](Call& c) { c.combine_out.tokens.device = gpu; });
  Call call;
  call.in.tokens.device = call.out.payload.device = Device::cpu();
  EXPECT_NO_THROW(call.check_dispatch());
}

TEST(Validate, RefusesBadOutputs) {
  bad_dispatch("payload", "not given", [](Call& c) { c.out.payload = {}; });
  bad_dispatch("payload", "row_capacity", [](Call& c) { --c.out.payload.shape[0]; });
  bad_dispatch("scales", "not given", [](Call& c) { c.out.scales = {}; });
  bad_dispatch("scales", "u8", [](Call& c) { c.out.scales.dtype = DType::u8; });
  bad_dispatch("row_offsets", "", [](Call& c) { --c.out.row_offsets.shape[0]; });
  bad_dispatch("expert_ids", "u32", [](Call& c) { c.out.expert_ids.dtype = DType::u32; });
  bad_dispatch("src_info", "", [](Call& c) { c.out.src_info.shape[1] = 3; });
  bad_dispatch("scales_offsets", "tiled",
               [](Call& c) { c.out.scales_offsets = Tensor(c.offsets.data(), DType::u32, {3}); });
}

TEST(Validate, RefusesBadCombineCalls) {
  bad_combine("rows", "5", [](Call& c) { c.combine_in.rows.shape[0] = 4; });
  bad_combine("rows", "u8", [](Call& c) { c.combine_in.rows.dtype = DType::u8; });
  bad_combine("src_info", "5", [](Call& c) { c.combine_in.src_info.shape[0] = 4; });
  bad_combine("topk_weights are given to dispatch", "by_rank", [](Call& c) {
    c.combine_in.topk_weights = ConstTensor(c.weights.data(), DType::f32, {3, 2});
  });
  bad_combine("tokens", "epilogue", [](Call& c) { c.combine_out.tokens = {}; });
  bad_combine("tokens", "3 tokens", [](Call& c) { c.combine_out.tokens.shape[0] = 2; });
  bad_combine("tokens", "i32", [](Call& c) { c.combine_out.tokens.dtype = DType::i32; });
  const auto unreduced = [](Call& c) { c.combine_out.tokens = Tensor(c.sums.data(), DType::f32, {3, 2, 32}); };
  bad_combine("tokens", "by_rank", unreduced);
  Call exact("fp8_block128", Reduction::exact);
  unreduced(exact);
  EXPECT_NO_THROW(exact.check_combine());
  exact.combine_in.topk_weights = ConstTensor(exact.weights.data(), DType::f32, {3, 2});
  expect_refused(
      exact, [&] { exact.check_combine(); }, "unreduced rows are not weighted", "topk_weights");
  exact.combine_in.topk_weights = {};
  exact.combine_in.router_weight = [](void*, int, int) { return 1.0f; };
  expect_refused(
      exact, [&] { exact.check_combine(); }, "unreduced rows are not weighted", "router_weight");
}

// I18: a row of src_info is compared with what dispatch laid out there, so it never becomes an address.
TEST(Validate, RefusesASrcInfoRowThatDispatchDidNotWrite) {
  const Call call;
  const auto check = [&](std::int32_t token, std::int32_t k) {
    const std::int32_t info[] = {0, 0, token, k};
    check_src_info_row(call.context(), info, 1, 0, 3, 2, 1);
  };
  EXPECT_NO_THROW(check(2, 1));
  expect_refused(
      call, [&] { check(3, 1); }, "src_info[1] names token 3", "0 to 2");
  expect_refused(
      call, [&] { check(-1, 1); }, "src_info[1] names token -1");
  expect_refused(
      call, [&] { check(2, 7); }, "src_info[1] names k = 7", "2");
  expect_refused(
      call, [&] { check(1, 1); }, "src_info[1] is (1, 1)", "(2, 1)");
}

}  // namespace
}  // namespace ferry
