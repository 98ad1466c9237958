// What swiglu refuses: one message that names the argument, the value and the limit, and nothing written.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "examples/int8_block64.h"
#include "ferry/detail/activation/swiglu_check.h"
#include "ferry/error.h"
#include "support/activation_case.h"

namespace ferry {
namespace {

using test::ActivationCase;
using test::ActivationShape;

struct Call {
  SwigluInput in;
  SwigluOutput out;
  SwigluOptions options;
};

void expect_refused(const char* format, const std::function<void(ActivationCase&, Call&)>& spoil,
                    const std::vector<std::string>& parts) {
  ActivationShape shape;
  ActivationCase one(format_named(format), shape, 1);
  Call call{one.input(), one.output(), shape.options};
  EXPECT_NO_THROW(swiglu(one.format, call.in, call.out, call.options)) << "the call is refused before it is spoilt";
  one.payload.assign(one.payload.size(), 0xa5a5);
  one.scales.assign(one.scales.size(), 0xa5a5a5a5u);
  const std::vector<std::uint16_t> payload = one.payload;
  const std::vector<std::uint32_t> scales = one.scales;
  spoil(one, call);
  try {
    swiglu(one.format, call.in, call.out, call.options);
    ADD_FAILURE() << "taken, and should say " << testing::PrintToString(parts);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << " is not in: " << error.what();
  }
  EXPECT_EQ(one.payload, payload);
  EXPECT_EQ(one.scales, scales);
}

TEST(SwigluRefuses, BadRows) {
  expect_refused("bf16", [](auto&, Call& c) { c.in.rows = {}; }, {"rows is not given"});
  expect_refused("bf16", [](auto&, Call& c) { c.in.rows.dtype = DType::i32; }, {"rows has dtype i32", "bf16"});
  expect_refused("bf16", [](auto&, Call& c) { c.in.rows.rank = 1; }, {"rows is", "[row_capacity, 2 * inter]"});
  expect_refused("bf16", [](auto&, Call& c) { c.in.rows.shape[1] = 100; }, {"rows has 100 columns", "32"});
  expect_refused("bf16", [](auto&, Call& c) { c.in.rows.shape[1] = 0; }, {"rows has 0 columns"});
  expect_refused("bf16", [](auto&, Call& c) { c.in.rows.strides[0] = 300; }, {"rows", "contiguous"});
  expect_refused("bf16", [](auto&, Call& c) { c.in.rows.data = static_cast<const char*>(c.in.rows.data) + 1; },
                 {"rows starts at 0x", "multiple of 2"});
}

TEST(SwigluRefuses, MemoryOfAGpu) {
  static const float kOne = 1.0f;
  const Device gpu = Device::cuda(1);
  expect_refused("nvfp4", [&](auto&, Call& c) { c.in.rows.device = gpu; },
                 {"rows is memory of cuda:1", "host memory", "cuda_swiglu"});
  expect_refused("nvfp4", [&](auto&, Call& c) { c.in.row_offsets.device = gpu; }, {"row_offsets is memory of cuda:1"});
  expect_refused("nvfp4", [&](auto&, Call& c) { c.in.scales_offsets.device = gpu; },
                 {"scales_offsets is memory of cuda:1"});
  expect_refused("nvfp4", [&](auto&, Call& c) { c.in.input_scales = ConstTensor(&kOne, DType::f32, {1}, gpu); },
                 {"input_scales is memory of cuda:1"});
  expect_refused("nvfp4", [&](auto&, Call& c) { c.out.payload.device = gpu; }, {"payload is memory of cuda:1"});
  expect_refused("nvfp4", [&](auto&, Call& c) { c.out.scales.device = gpu; }, {"scales is memory of cuda:1"});
}

// cuda_swiglu's check, which runs without a GPU, too.
TEST(SwigluRefuses, HostMemoryWhereAGpuActivates) {
  ActivationShape shape;
  ActivationCase one(format_named("nvfp4"), shape, 1);
  const auto refusal_of = [&](const SwigluInput& in, const SwigluOutput& out) -> std::string {
    try {
      activation::check_swiglu(one.format, in, out, shape.options, activation::TensorMemory::device);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  SwigluInput in = one.input();
  in.rows.device = Device::cpu();
  EXPECT_EQ(refusal_of(in, one.output()), "swiglu: rows is host memory; it must be memory of a GPU");
  SwigluOutput out = one.output();
  out.scales.device = Device::cpu();
  EXPECT_EQ(refusal_of(one.input(), out), "swiglu: scales is host memory; it must be memory of a GPU");
}

TEST(SwigluRefuses, BadRowOffsets) {
  expect_refused("bf16", [](auto&, Call& c) { c.in.row_offsets = {}; }, {"row_offsets is not given"});
  expect_refused("bf16", [](auto&, Call& c) { c.in.row_offsets.dtype = DType::i64; }, {"row_offsets is i64", "u32"});
  expect_refused("bf16", [](auto&, Call& c) { c.in.row_offsets.shape[0] = 1; }, {"row_offsets", "one group or more"});
  expect_refused("bf16", [](ActivationCase& o, Call&) { o.shape_.row_offsets[0] = 2; }, {"row_offsets[0] is 2"});
  expect_refused("bf16", [](ActivationCase& o, Call&) { o.shape_.row_offsets[2] = 4; },
                 {"row_offsets[2] is 4", "row_offsets[1]", "5"});
  expect_refused("bf16", [](ActivationCase& o, Call&) { o.shape_.row_offsets[4] = 145; },
                 {"row_offsets[4] is 145", "144 rows"});
}

TEST(SwigluRefuses, BadPayload) {
  expect_refused("bf16", [](auto&, Call& c) { c.out.payload = {}; }, {"payload is not given", "[144, 96]"});
  expect_refused("mxfp8", [](auto&, Call& c) { c.out.payload.dtype = DType::bf16; }, {"payload is bf16", "u8"});
  expect_refused("mxfp4", [](auto&, Call& c) { c.out.payload.shape[1] = 96; }, {"payload is u8 [144, 96]", "48"});
  expect_refused("bf16", [](auto&, Call& c) { c.out.payload.shape[0] = 140; }, {"payload is bf16 [140, 96]", "144"});
  expect_refused("mxfp8", [](auto&, Call& c) { c.out.payload.strides[0] = 97; }, {"payload", "contiguous"});
  expect_refused("mxfp8", [](ActivationCase& o, Call& c) { c.out.payload.data = o.halves.data() + 100; },
                 {"payload shares memory with rows"});
}

TEST(SwigluRefuses, BadScales) {
  expect_refused("mxfp8", [](auto&, Call& c) { c.out.scales = {}; }, {"scales is not given", "[144, 3]"});
  expect_refused("fp8_block128", [](auto&, Call& c) { c.out.scales.dtype = DType::u8; },
                 {"scales is u8", "f32 [1, 144]"});
  expect_refused("fp8_block128", [](auto&, Call& c) { std::swap(c.out.scales.shape[0], c.out.scales.shape[1]); },
                 {"scales is f32 [144, 1]", "f32 [1, 144]"});
  expect_refused("nvfp4", [](auto&, Call& c) { c.out.scales.shape[0] = 3; }, {"scales", "[6, 2, 32, 4, 4]"});
  expect_refused("bf16",
                 [](ActivationCase& o, Call& c) {
                   c.out.scales = Tensor(o.scales.data(), DType::u8, {144, 3});
                 },
                 {"scales is given", "bf16 has none"});
  expect_refused("mxfp8", [](auto&, Call& c) { c.options.tiled_scales = true; }, {"scales is u8 [144, 3]"});
  expect_refused("mxfp4",
                 [](auto&, Call& c) {
                   c.options.tiled_scales = false;
                   c.out.scales.rank = 1;
                 },
                 {"scales"});
  expect_refused("fp8_block128", [](auto&, Call& c) { c.options.tiled_scales = true; },
                 {"tiled_scales", "fp8_block128"});
}

struct ScalesOfTwoBytes : Int8Block64 {
  FERRY_HD static constexpr int scale_bytes() { return 2; }
};

// Its scales would be written past the caller's tensor, whose elements are of one byte.
TEST(SwigluRefuses, AFormatWhoseScalesFitNoTensor) {
  ActivationShape shape;
  ActivationCase one(format_named("mxfp8"), shape, 1);
  try {
    swiglu(any_format<ScalesOfTwoBytes>(), one.input(), one.output(), shape.options);
    ADD_FAILURE() << "scales of two bytes were taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("scale_bytes of the format int8_block64 is 2"), std::string::npos)
        << error.what();
  }
}

TEST(SwigluRefuses, BadScalesOffsets) {
  expect_refused("nvfp4", [](auto&, Call& c) { c.in.scales_offsets = {}; }, {"scales_offsets is not given"});
  expect_refused("nvfp4", [](ActivationCase& o, Call&) { o.scales_offsets[2] = 900; },
                 {"scales_offsets[2] is 900", "tiles"});
  expect_refused("nvfp4", [](ActivationCase& o, Call&) { o.scales_offsets[2] = 0; },
                 {"scales_offsets[2] is 0", "1 to 5"});  // the first group's tile again
  expect_refused(
      "mxfp8",
      [](ActivationCase& o, Call& c) { c.in.scales_offsets = ConstTensor(o.scales_offsets.data(), DType::u32, {4}); },
      {"scales_offsets is given", "row_major"});
}

TEST(SwigluRefuses, BadInputScales) {
  const auto give = [](float value) {
    return [value](ActivationCase& o, Call& c) {
      o.input_scales = {1.0f, 1.0f, value, 1.0f};
      c.in.input_scales = ConstTensor(o.input_scales.data(), DType::f32, {4});
    };
  };
  expect_refused("nvfp4", give(0.0f), {"input_scales[2] is 0", "greater than 0"});
  expect_refused("nvfp4", give(-1.0f), {"input_scales[2] is -1"});
  expect_refused("nvfp4", give(std::numeric_limits<float>::infinity()), {"input_scales[2] is inf"});
  expect_refused("nvfp4", give(std::numeric_limits<float>::quiet_NaN()), {"input_scales[2] is nan"});
  expect_refused("mxfp4", give(1.0f), {"input_scales is given", "mxfp4"});
  expect_refused("nvfp4",
                 [&](ActivationCase& o, Call& c) {
                   give(1.0f)(o, c);
                   c.in.input_scales.shape[0] = 3;
                 },
                 {"input_scales is f32 [3]", "f32 [4]"});
}

TEST(SwigluRefuses, BadClampOptions) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  expect_refused("bf16",
                 [&](auto&, Call& c) {
                   c.options.clamped = true;
                   c.options.alpha = nan;
                 },
                 {"alpha is nan"});
  expect_refused("bf16",
                 [](auto&, Call& c) {
                   c.options.clamped = true;
                   c.options.limit = 0;
                 },
                 {"limit is 0"});
  expect_refused("bf16",
                 [&](auto&, Call& c) {
                   c.options.clamped = true;
                   c.options.limit = nan;
                 },
                 {"limit is nan"});
}

}  // namespace
}  // namespace ferry
