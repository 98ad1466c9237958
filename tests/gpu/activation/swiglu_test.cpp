// cuda_swiglu gives the bytes of swiglu: payload and scales, what it leaves alone included.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "device_case.h"

namespace ferry::test {
namespace {

struct Variant {
  SwigluOptions options;
  std::string name;
};

std::vector<Variant> variants_of(const AnyFormat& format) {
  std::vector<Variant> all;
  const bool may_tile = format.block() == 32;
  for (const bool interleaved : {false, true})
    for (const bool clamped : {false, true})
      for (const bool tiled : {false, true}) {
        if (tiled && !may_tile) continue;
        SwigluOptions options;
        options.interleaved = interleaved;
        options.clamped = clamped;
        options.tiled_scales = tiled;
        all.push_back({options, std::string(interleaved ? " interleaved" : "") + (clamped ? " clamped" : "") +
                                    (tiled ? " tiled" : "")});
      }
  return all;
}

// Runs both and compares every byte of both outputs.
void expect_same(ActivationCase& one, const std::string& what, const CudaLaunch& launch = {}) {
  DeviceCase device(one);
  device.run(launch);
  std::vector<std::uint16_t> payload;
  std::vector<std::uint32_t> scales;
  device.read(payload, scales);
  one.run();
  const auto* const want = reinterpret_cast<const std::uint8_t*>(one.payload.data());
  const auto* const got = reinterpret_cast<const std::uint8_t*>(payload.data());
  const std::size_t row_bytes = one.format.payload_bytes(one.shape_.inter);
  for (std::size_t i = 0; i < payload.size() * 2; ++i)
    ASSERT_EQ(got[i], want[i]) << what << " payload row " << i / row_bytes << " byte " << i % row_bytes;
  for (std::size_t i = 0; i < scales.size(); ++i) ASSERT_EQ(scales[i], one.scales[i]) << what << " scale word " << i;
}

std::string describe(const AnyFormat& format, const ActivationShape& shape, const Variant& variant) {
  return std::string(format.name()) + variant.name + ' ' + to_string(shape.dtype) + " inter " +
         std::to_string(shape.inter);
}

// Any bits at all, NaNs and infinities among them.
void fill_with_any_bits(ActivationCase& one, unsigned seed) {
  std::mt19937 random(seed);
  for (std::uint16_t& half : one.halves) half = static_cast<std::uint16_t>(random());
  for (float& value : one.floats) {
    const auto bits = static_cast<std::uint32_t>(random());
    std::memcpy(&value, &bits, 4);
  }
}

TEST(CudaSwiglu, GivesTheBytesOfTheCpu) {
  FERRY_SKIP_WITHOUT_GPU();
  for (const AnyFormat& format : all_formats()) {
    for (const Variant& variant : variants_of(format)) {
      for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
        for (const int inter : {32, 96, 160, 512, 2880}) {
          ActivationShape shape;
          shape.dtype = dtype;
          shape.inter = inter;
          shape.options = variant.options;
          ActivationCase one(format, shape, static_cast<unsigned>(inter));
          if (std::string(format.name()) == "nvfp4" && inter != 96) one.input_scales = {1.0f, 3.0f, 40.0f, 0.75f};
          ASSERT_NO_FATAL_FAILURE(expect_same(one, describe(format, shape, variant)));
        }
      }
    }
  }
}

TEST(CudaSwiglu, GivesTheBytesOfTheCpuForAnyBits) {
  FERRY_SKIP_WITHOUT_GPU();
  for (const AnyFormat& format : all_formats()) {
    for (const Variant& variant : variants_of(format)) {
      for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
        ActivationShape shape;
        shape.dtype = dtype;
        shape.inter = 2048;
        shape.options = variant.options;
        shape.row_offsets = {0, 33, 33, 120};
        ActivationCase one(format, shape, 1);
        fill_with_any_bits(one, static_cast<unsigned>(dtype));
        ASSERT_NO_FATAL_FAILURE(expect_same(one, "any bits " + describe(format, shape, variant)));
      }
    }
  }
}

// Every bf16 as a gate, beside ups that keep the product in range or out of it.
TEST(CudaSwiglu, EveryGateGivesTheBitsOfTheCpu) {
  FERRY_SKIP_WITHOUT_GPU();
  for (const bool clamped : {false, true}) {
    ActivationShape shape;
    shape.inter = 2048;
    shape.options.clamped = clamped;
    shape.row_offsets = {0, 128};
    shape.spare_rows = 0;
    ActivationCase one(format_named("bf16"), shape, 5);
    std::mt19937 random(17);
    for (std::size_t row = 0; row < 128; ++row)
      for (std::size_t column = 0; column < 2048; ++column) {
        one.halves[row * 4096 + column] = static_cast<std::uint16_t>(row % 32 * 2048 + column);
        if (row >= 32) one.halves[row * 4096 + 2048 + column] = static_cast<std::uint16_t>(random());
      }
    ASSERT_NO_FATAL_FAILURE(expect_same(one, clamped ? "clamped" : "plain"));
  }
}

TEST(CudaSwiglu, TakesManyRowsAndFewBlocks) {
  FERRY_SKIP_WITHOUT_GPU();
  for (const char* name : {"fp8_block128", "nvfp4", "mxfp6_e2m3"}) {
    for (const int max_blocks : {0, 1, 7}) {
      ActivationShape shape;
      shape.inter = 768;
      shape.row_offsets = {0, 1, 700, 700, 701, 1500, 1500};
      shape.spare_rows = 1000;
      ActivationCase one(format_named(name), shape, 9);
      CudaLaunch launch;
      launch.max_blocks = max_blocks;
      ASSERT_NO_FATAL_FAILURE(expect_same(one, std::string(name) + " blocks " + std::to_string(max_blocks), launch));
    }
  }
}

// More groups than a warp keeps, empty ones among them, and warps whose rows lie in several.
TEST(CudaSwiglu, TakesManyGroups) {
  FERRY_SKIP_WITHOUT_GPU();
  std::mt19937 random(23);
  for (const int groups : {31, 32, 33, 64, 200, 1500}) {
    for (const int inter : {32, 96, 768}) {
      ActivationShape shape;
      shape.inter = inter;
      shape.row_offsets = {0};
      for (int group = 0; group < groups; ++group) {
        const auto rows = static_cast<std::uint32_t>(random() % 5 == 0   ? random() % 150
                                                     : random() % 3 == 0 ? random() % 4
                                                                         : 0);
        shape.row_offsets.push_back(shape.row_offsets.back() + (groups > 1000 ? rows / 8 : rows));
      }
      shape.spare_rows = 77;
      for (const int max_blocks : {0, 3}) {
        ActivationCase one(format_named("nvfp4"), shape, static_cast<unsigned>(groups));
        one.input_scales.resize(static_cast<std::size_t>(groups));
        for (float& scale : one.input_scales) scale = 0.25f + static_cast<float>(random() % 64);
        CudaLaunch launch;
        launch.max_blocks = max_blocks;
        ASSERT_NO_FATAL_FAILURE(
            expect_same(one, std::to_string(groups) + " groups inter " + std::to_string(inter), launch));
      }
    }
  }
}

TEST(CudaSwiglu, NoRowsIsNothingToDo) {
  FERRY_SKIP_WITHOUT_GPU();
  for (const AnyFormat& format : all_formats()) {
    ActivationShape shape;
    shape.row_offsets = {0, 0, 0};
    ActivationCase one(format, shape, 15);
    ASSERT_NO_FATAL_FAILURE(expect_same(one, format.name()));
  }
}

// The rows that row_offsets says exist when the graph runs, not when it was captured; behind a copy and another kernel.
TEST(CudaSwiglu, ACapturedGraphFollowsTheRowsOfTheDay) {
  FERRY_SKIP_WITHOUT_GPU();
  for (const char* name : {"bf16", "fp8_block128", "nvfp4"}) {
    ActivationShape shape;
    shape.inter = 256;
    ActivationCase one(format_named(name), shape, 21);
    const std::vector<std::uint16_t> payload_before = one.payload;
    const std::vector<std::uint32_t> scales_before = one.scales;
    DeviceCase device(one);
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    void* other = nullptr;
    cuda_ok(cudaMalloc(&other, 256));
    cuda_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cuda_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    cuda_ok(cudaMemsetAsync(other, 0, 256, stream));
    CudaLaunch launch;
    launch.stream = stream;
    device.run(launch);
    device.run(launch);
    cuda_ok(cudaStreamEndCapture(stream, &graph));
    cuda_ok(cudaGraphInstantiate(&replay, graph, 0));
    for (const std::vector<std::uint32_t>& offsets :
         {std::vector<std::uint32_t>{0, 5, 5, 140, 141}, {0, 0, 0, 0, 0}, {0, 2, 3, 4, 100}}) {
      one.shape_.row_offsets = offsets;
      std::uint32_t blocks = 0;
      for (std::size_t group = 0; group < 4; ++group) {
        one.scales_offsets[group] = blocks - offsets[group] / 128;
        blocks += (offsets[group + 1] - offsets[group] + 127) / 128;
      }
      fill_with_any_bits(one, offsets[3]);
      one.payload = payload_before;
      one.scales = scales_before;
      device.reset();
      cuda_ok(cudaGraphLaunch(replay, stream));
      std::vector<std::uint16_t> payload;
      std::vector<std::uint32_t> scales;
      device.read(payload, scales);
      // As the CPU, over the capacity that the graph was captured with.
      swiglu(one.format,
             {ConstTensor(one.halves.data(), DType::bf16, {144, 512}),
              ConstTensor(offsets.data(), DType::u32, {5}),
              one.tiled() ? ConstTensor(one.scales_offsets.data(), DType::u32, {4}) : ConstTensor{},
              {}},
             [&] {
               SwigluOutput out = device.out;
               out.payload.data = one.payload.data();
               if (out.scales) out.scales.data = one.scales.data();
               return out;
             }());
      EXPECT_EQ(payload, one.payload) << name << ' ' << offsets[3];
      EXPECT_EQ(scales, one.scales) << name << ' ' << offsets[3];
    }
    cuda_ok(cudaGraphExecDestroy(replay));
    cuda_ok(cudaGraphDestroy(graph));
    cuda_ok(cudaStreamDestroy(stream));
    cuda_ok(cudaFree(other));
  }
}

}  // namespace
}  // namespace ferry::test
