// cuda_decode_rows beside decode_row: every format, layout and order of rows. The emulated suite runs these tests, too.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>

#include "decoded_case.h"
#include "gpu/captured_graph.h"
#include "gpu/stream.h"
#include "own_decoders.h"

namespace ferry::test {
namespace {

constexpr RowOrder kOrders[] = {RowOrder::by_expert, RowOrder::padded, RowOrder::by_source};
constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::f16};

// Each order has its number, so that the dtypes take turns over formats and orders.
DecodedShape shape_of(int order, int turn, std::vector<std::uint32_t> rows) {
  DecodedShape shape;
  shape.order = kOrders[order];
  shape.dtype = kDTypes[(order + turn) % 3];
  shape.rows = std::move(rows);
  if (shape.order == RowOrder::by_source) shape.rows = {shape.rows[0] + shape.rows[1], shape.rows[2] + shape.rows[3]};
  return shape;
}

void expect_right(const AnyFormat& format, const DecodedShape& shape) {
  load_cuda_decode_rows(format);
  const DecodedCase one(format, shape, 1);
  one.run();
  EXPECT_EQ(one.first_wrong(), "");
}

// One group has more rows than a tile of scales.
TEST(CudaDecodeRows, GivesTheValuesOfDecodeRow) {
  FERRY_SKIP_WITHOUT_GPU();
  int turn = 0;
  for (const AnyFormat& format : all_formats())
    for (int order = 0; order < 3; ++order)
      for (const bool zeros : {false, true}) {
        DecodedShape shape = shape_of(order, turn++, {5, 0, 135, 1});
        shape.hidden = 32;
        shape.zero_padding = zeros;
        expect_right(format, shape);
      }
}

TEST(CudaDecodeRows, TakesRowsOfAnyLength) {
  FERRY_SKIP_WITHOUT_GPU();
  int turn = 0;
  for (const AnyFormat& format : all_formats())
    for (const int hidden : {96, 2880, 7168}) {
      DecodedShape shape = shape_of(turn % 3, turn / 3, {3, 0, 2, 1});
      shape.hidden = hidden;
      shape.spare_rows = 1;
      expect_right(format, shape);
      ++turn;
    }
}

TEST(CudaDecodeRows, TakesTiledScalesOfMxfp8) {
  FERRY_SKIP_WITHOUT_GPU();
  for (int order = 0; order < 3; ++order) {
    DecodedShape shape = shape_of(order, 0, {5, 0, 135, 1});
    shape.hidden = 160;
    shape.tiled_scales = true;
    expect_right(format_named("mxfp8"), shape);
  }
}

TEST(CudaDecodeRows, TakesTheScalesOfTheDispatchAndOfEachToken) {
  FERRY_SKIP_WITHOUT_GPU();
  for (int order = 0; order < 3; ++order) {
    for (const float input_scale : {37.5f, 1e-30f}) {
      DecodedShape shape = shape_of(order, 1, {5, 0, 9, 1});
      shape.input_scale = input_scale;
      expect_right(format_named("nvfp4"), shape);
    }
    DecodedShape shape = shape_of(order, 2, {5, 0, 9, 1});
    shape.dynamic_scales = true;
    for (const bool narrow : {false, true}) {
      shape.narrow_global_scales = narrow;
      expect_right(format_named("nvfp4"), shape);
    }
  }
}

TEST(CudaDecodeRows, TakesNoRows) {
  FERRY_SKIP_WITHOUT_GPU();
  for (int order = 0; order < 3; ++order)
    for (const int spare : {0, 2}) {
      DecodedShape shape = shape_of(order, 0, {0, 0, 0, 0});
      shape.spare_rows = spare;
      shape.zero_padding = true;
      expect_right(format_named("fp8_block128"), shape);
    }
}

// A block has every stretch in turn.
TEST(CudaDecodeRows, NeedsOneBlock) {
  FERRY_SKIP_WITHOUT_GPU();
  load_cuda_decode_rows(format_named("mxfp4"));
  DecodedShape shape = shape_of(1, 0, {3, 0, 4, 1});
  shape.hidden = 2880;
  const DecodedCase one(format_named("mxfp4"), shape, 2);
  one.run({.max_blocks = 1});
  EXPECT_EQ(one.first_wrong(), "");
}

// How many rows there are is read when the kernel runs.
TEST(CudaDecodeRows, IsCapturedAndReplayedWithOtherRows) {
  FERRY_SKIP_WITHOUT_GPU();
  load_cuda_decode_rows(format_named("nvfp4"));
  for (int order = 0; order < 3; ++order) {
    const Stream stream(0);
    DecodedCase one(format_named("nvfp4"), shape_of(order, 0, {5, 3, 9, 7}), 3);
    const CapturedGraph graph(stream.get(), [&] { one.run({.stream = stream.get()}); });
    const auto as_rows = [&](const std::vector<std::uint32_t>& rows) { return shape_of(order, 0, rows).rows; };
    for (const auto& rows : {as_rows({5, 3, 9, 7}), as_rows({2, 0, 9, 1}), as_rows({0, 0, 0, 0})}) {
      one.set_rows(rows);
      one.copy();
      one.poison_values();
      graph.launch(stream.get());
      EXPECT_EQ(one.first_wrong(), "");
    }
  }
}

TEST(CudaDecodeRows, TakesFormatsOfTheCaller) {
  FERRY_SKIP_WITHOUT_GPU();
  int turn = 0;
  for (const OwnDecoder& own : own_decoders()) {
    own.load();
    for (int order = 0; order < 3; ++order) {
      DecodedShape shape = shape_of(order, turn, {5, 0, 135, 1});
      shape.hidden = order == 0 ? 1120 : 96;
      shape.zero_padding = turn++ % 2 == 0;
      if (order == 0) shape.rows = {3, 0, 5, 1};
      const DecodedCase one(own.format, shape, 4);
      own.decode(one.layout, one.on_device(), one.values(), one.options(), {});
      EXPECT_EQ(one.first_wrong(), "");
    }
  }
}

// ---- refusals, and values in device memory that must not become a wild access

using Spoil = std::function<void(DecodedCase&, DispatchOutput&, Tensor&, DecodeOptions&, CudaLaunch&)>;

void expect_refused(const char* format, RowOrder order, ErrorKind kind, const Spoil& spoil,
                    const std::vector<std::string>& parts) {
  DecodedShape shape =
      shape_of(static_cast<int>(std::find(kOrders, std::end(kOrders), order) - kOrders), 0, {2, 1, 3, 1});
  DecodedCase one(format_named(format), shape, 1);
  DispatchOutput rows = one.on_device();
  Tensor values = one.values();
  DecodeOptions options = one.options();
  CudaLaunch launch;
  EXPECT_NO_THROW(one.run()) << "the call is refused before it is spoilt";
  cuda_ok(cudaDeviceSynchronize());
  spoil(one, rows, values, options, launch);
  try {
    cuda_decode_rows(one.format, one.layout, rows, values, options, launch);
    ADD_FAILURE() << "taken, and should say " << testing::PrintToString(parts);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << " is not in: " << error.what();
  }
}

TEST(CudaDecodeRowsRefuses, TensorsThatDoNotFit) {
  FERRY_SKIP_WITHOUT_GPU();
  for (const char* name : {"nvfp4", "fp8_block128"}) load_cuda_decode_rows(format_named(name));
  const auto refused = [](RowOrder order, const Spoil& spoil, const std::vector<std::string>& parts) {
    expect_refused("nvfp4", order, ErrorKind::invalid_argument, spoil, parts);
  };
  const RowOrder expert = RowOrder::by_expert, padded = RowOrder::padded, source = RowOrder::by_source;
  refused(expert, [](auto&, auto& rows, auto&, auto&, auto&) { rows.payload = {}; }, {"payload is not given"});
  refused(expert, [](auto&, auto& rows, auto&, auto&, auto&) { rows.scales = {}; }, {"scales is not given"});
  refused(expert, [](auto&, auto& rows, auto&, auto&, auto&) { rows.row_offsets = {}; }, {"row_offsets is not given"});
  refused(expert, [](auto&, auto& rows, auto&, auto&, auto&) { rows.src_info = {}; }, {"src_info is not given"});
  refused(expert, [](auto&, auto& rows, auto&, auto&, auto&) { rows.scales_offsets.shape[0] = 3; },
          {"scales_offsets is", "it must be u32 [4]"});
  refused(padded, [](auto&, auto& rows, auto&, auto&, auto&) { rows.counts = {}; }, {"counts is not given"});
  refused(padded, [](auto&, auto&, auto&, auto& options, auto&) { options.expert_stride = 1000; },
          {"payload has", "expert_stride 1000"});
  refused(source, [](auto&, auto& rows, auto&, auto&, auto&) { rows.source_offsets = {}; },
          {"source_offsets is not given"});
  refused(source, [](auto&, auto&, auto&, auto& options, auto&) { options.expert_stride = 2; }, {"expert_stride is 2"});
  refused(expert, [](auto&, auto&, auto&, auto& options, auto&) { options.row_order = RowOrder::in_place; },
          {"row_order is in_place"});
  refused(expert, [](auto&, auto&, auto& values, auto&, auto&) { values = {}; }, {"values is not given"});
  refused(expert, [](auto&, auto&, auto& values, auto&, auto&) { values.dtype = DType::f64; },
          {"values has dtype f64"});
  refused(expert, [](auto&, auto&, auto& values, auto&, auto&) { values.shape[1] = 64; }, {"values is"});
  refused(expert, [](auto&, auto&, auto& values, auto&, auto&) { values.strides[0] += 32; },
          {"values is", "contiguous"});
  refused(expert, [](auto&, auto&, auto& values, auto&, auto&) { values.data = values.template as<float>() + 2; },
          {"values starts at 0x", "multiple of 16"});
  refused(expert, [](auto& one, auto&, auto&, auto&, auto&) { one.layout.scales_per_row = 5; },
          {"another format than nvfp4", "5 scales"});
  refused(expert, [](auto&, auto&, auto&, auto&, auto& launch) { launch.max_blocks = -1; }, {"max_blocks is -1"});
  expect_refused("fp8_block128", expert, ErrorKind::invalid_argument,
                 [](auto& one, auto&, auto&, auto&, auto&) { one.layout.scale_layout = ScaleLayout::tiled; },
                 {"tiled scales", "fp8_block128"});
}

TEST(CudaDecodeRowsRefuses, HostMemoryAndMemoryOfAnotherDevice) {
  FERRY_SKIP_WITHOUT_GPU();
  load_cuda_decode_rows(format_named("nvfp4"));
  alignas(16) static std::array<std::byte, 1 << 16> host;
  const auto refused = [](const Spoil& spoil, const std::vector<std::string>& parts) {
    expect_refused("nvfp4", RowOrder::by_expert, ErrorKind::invalid_argument, spoil, parts);
  };
  refused([](auto&, auto& rows, auto&, auto&, auto&) { rows.payload.data = host.data(); }, {"payload", "host memory"});
  refused([](auto&, auto&, auto& values, auto&, auto&) { values.data = host.data(); }, {"values", "host memory"});
  refused([](auto&, auto& rows, auto&, auto&, auto&) { rows.src_info.data = host.data(); },
          {"src_info", "host memory"});
  refused(
      [](auto&, auto&, auto&, auto& options, auto&) { options.input_scale = reinterpret_cast<float*>(host.data()); },
      {"input_scale", "host memory"});
  refused([](auto&, auto& rows, auto&, auto&, auto&) { rows.scales.device = Device::cpu(); },
          {"scales is host memory"});
  refused([](auto&, auto& rows, auto&, auto&, auto&) { rows.scales.device = Device::cuda(7); },
          {"scales is memory of device 7", "payload is memory of device"});
}

TEST(CudaDecodeRowsRefuses, FormatsWithoutKernels) {
  const auto refused = [](const AnyFormat& format, ErrorKind kind, const char* part) {
    try {
      load_cuda_decode_rows(format);
      ADD_FAILURE() << "taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refused(own_decoders().front().format, ErrorKind::unsupported, "compiled_decode_rows");
  refused(format_named("bytes_48_3x1"), ErrorKind::invalid_argument, "bytes_48_3x1 are never looked at");
}

// More rows than there is room for, and tiles far away.
TEST(CudaDecodeRowsValues, BadOffsetsOnTheDeviceReadAndWriteNowhereElse) {
  FERRY_SKIP_WITHOUT_GPU();
  load_cuda_decode_rows(format_named("nvfp4"));
  const DecodedCase one(format_named("nvfp4"), shape_of(0, 0, {2, 1, 3, 1}), 5);
  const std::array<std::uint32_t, 5> offsets{0, 2, 1u << 30, 3, 4000000000u};
  const std::array<std::uint32_t, 4> tiles{1u << 30, 0xffffff00u, 2, 1u << 20};
  const DeviceCopy bad(offsets.data(), sizeof offsets), far(tiles.data(), sizeof tiles);
  DispatchOutput rows = one.on_device();
  rows.row_offsets.data = bad.data();
  rows.scales_offsets.data = far.data();
  cuda_decode_rows(one.format, one.layout, rows, one.values(), one.options());
  EXPECT_NE(one.first_wrong(), "") << "the offsets were not read";
  EXPECT_EQ(one.first_wrong().find("row " + std::to_string(one.capacity) + " of"), std::string::npos);
}

}  // namespace
}  // namespace ferry::test
