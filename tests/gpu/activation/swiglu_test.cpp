// cuda_swiglu gives what swiglu gives, but for the last places of float32: payload and scales. What it leaves alone is
// the same byte for byte.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>

#include "device_case.h"
#include "support/activation_checks.h"

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

// The case with what a GPU made of it.
ActivationCase on_device(const ActivationCase& one, const CudaLaunch& launch = {}) {
  ActivationCase made = one;
  DeviceCase device(made);
  device.run(launch);
  device.read(made.payload, made.scales);
  return made;
}

// Runs both, and compares what they gave.
void expect_like_the_cpu(ActivationCase& one, const std::string& what, const CudaLaunch& launch = {}) {
  const ActivationCase got = on_device(one, launch);
  one.run();
  ASSERT_EQ(first_unlike(got, one), "") << what;
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

constexpr int kInters[] = {32, 96, 160, 512, 2880};

// Every format in all its variants, from rows of each of these types. Stops at the first fatal failure.
template <class Run>
void for_every_kind(std::initializer_list<DType> dtypes, const Run& run) {
  for (const AnyFormat& format : all_formats())
    for (const Variant& variant : variants_of(format))
      for (const DType dtype : dtypes) {
        ActivationShape shape;
        shape.dtype = dtype;
        shape.options = variant.options;
        ASSERT_NO_FATAL_FAILURE(run(format, variant, shape));
      }
}

TEST(CudaSwiglu, IsLikeTheCpu) {
  FERRY_SKIP_WITHOUT_GPU();
  for_every_kind({DType::bf16, DType::f16, DType::f32},
                 [](const AnyFormat& format, const Variant& variant, ActivationShape shape) {
                   for (const int inter : kInters) {
                     shape.inter = inter;
                     ActivationCase one(format, shape, static_cast<unsigned>(inter));
                     if (std::string(format.name()) == "nvfp4" && inter != 96)
                       one.input_scales = {1.0f, 3.0f, 40.0f, 0.75f};
                     ASSERT_NO_FATAL_FAILURE(expect_like_the_cpu(one, describe(format, shape, variant)));
                   }
                 });
}

TEST(CudaSwiglu, IsLikeTheCpuForAnyBits) {
  FERRY_SKIP_WITHOUT_GPU();
  for_every_kind({DType::bf16, DType::f16, DType::f32},
                 [](const AnyFormat& format, const Variant& variant, ActivationShape shape) {
                   shape.inter = 2048;
                   shape.row_offsets = {0, 33, 33, 120};
                   ActivationCase one(format, shape, 1);
                   fill_with_any_bits(one, static_cast<unsigned>(shape.dtype));
                   expect_like_the_cpu(one, "any bits " + describe(format, shape, variant));
                 });
}

TEST(CudaSwiglu, IsNearTheOracle) {
  FERRY_SKIP_WITHOUT_GPU();
  for_every_kind({DType::bf16, DType::f16, DType::f32},
                 [](const AnyFormat& format, const Variant& variant, ActivationShape shape) {
                   shape.inter = 288;
                   ASSERT_EQ(first_far_from_oracle(on_device(ActivationCase(format, shape, 31))), "")
                       << describe(format, shape, variant);
                 });
}

// Sigmoids of 32 and more are 1 for both, so the encoders get the same float32: every byte is the CPU's.
TEST(CudaSwiglu, GivesTheBytesOfTheCpuWhereSigmoidsAreOne) {
  FERRY_SKIP_WITHOUT_GPU();
  std::mt19937 random(41);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  for_every_kind({DType::bf16, DType::f32},
                 [&](const AnyFormat& format, const Variant& variant, ActivationShape shape) {
                   shape.options.alpha = 8.0f;  // of gates that are cut off to 7
                   for (const int inter : kInters) {
                     shape.inter = inter;
                     ActivationCase one(format, shape, static_cast<unsigned>(inter));
                     for (std::size_t row = 0; row < one.capacity(); ++row)
                       for (std::size_t column = 0; column < static_cast<std::size_t>(inter); ++column)
                         one.set_gate_up(row, column, 32.0f + std::fabs(normal(random)), normal(random));
                     const ActivationCase got = on_device(one);
                     one.run();
                     ASSERT_EQ(got.payload, one.payload) << describe(format, shape, variant);
                     ASSERT_EQ(got.scales, one.scales) << describe(format, shape, variant);
                   }
                 });
}

// The same rows give the same bytes each time, whatever the grid.
TEST(CudaSwiglu, IsTheSameEachTime) {
  FERRY_SKIP_WITHOUT_GPU();
  for (const AnyFormat& format : all_formats()) {
    ActivationShape shape;
    shape.inter = 768;
    shape.row_offsets = {0, 1, 700, 700, 701, 1500, 1500};
    const ActivationCase one(format, shape, 33);
    CudaLaunch launch;
    launch.max_blocks = 5;
    const ActivationCase first = on_device(one);
    const ActivationCase second = on_device(one, launch);
    EXPECT_EQ(first.payload, second.payload) << format.name();
    EXPECT_EQ(first.scales, second.scales) << format.name();
  }
}

// Where exp(-gate) is no normal float32 a sigmoid is 0, and a result 0 with the sign that it would have.
TEST(CudaSwiglu, GatesFarBelowZeroGiveZero) {
  FERRY_SKIP_WITHOUT_GPU();
  ActivationShape shape;
  shape.dtype = DType::f32;
  shape.inter = 32;
  shape.row_offsets = {0, 1};
  ActivationCase one(format_named("bf16"), shape, 35);
  constexpr float kGates[] = {-88.0f, -95.0f, -104.0f, -300.0f, -3.0e38f};
  for (std::size_t i = 0; i < std::size(kGates); ++i) {
    one.set_gate_up(0, 2 * i, kGates[i], 3.0f);
    one.set_gate_up(0, 2 * i + 1, kGates[i], -3.0f);
  }
  one.set_gate_up(0, 10, -87.0f, 1.0f);
  one.set_gate_up(0, 11, -std::numeric_limits<float>::infinity(), 1.0f);
  one.set_gate_up(0, 12, -90.0f, std::numeric_limits<float>::infinity());
  const ActivationCase got = on_device(one);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(got.payload[i], i % 2 == 0 ? 0x8000 : 0) << i;
  EXPECT_NEAR(got.decoded_row(0)[10] / one.oracle(0, 10), 1.0, 0x1p-7);
  EXPECT_TRUE(std::isnan(got.decoded_row(0)[11]));
  EXPECT_TRUE(std::isnan(got.decoded_row(0)[12]));
}

// Every bf16 as a gate, beside ups that keep the product in range or out of it.
TEST(CudaSwiglu, IsLikeTheCpuForEveryGate) {
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
    ASSERT_NO_FATAL_FAILURE(expect_like_the_cpu(one, clamped ? "clamped" : "plain"));
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
      ASSERT_NO_FATAL_FAILURE(
          expect_like_the_cpu(one, std::string(name) + " blocks " + std::to_string(max_blocks), launch));
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
            expect_like_the_cpu(one, std::to_string(groups) + " groups inter " + std::to_string(inter), launch));
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
    ASSERT_NO_FATAL_FAILURE(expect_like_the_cpu(one, format.name()));
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
      ActivationCase got = one;
      device.read(got.payload, got.scales);
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
      EXPECT_EQ(first_unlike(got, one), "") << name << ' ' << offsets[3];
    }
    cuda_ok(cudaGraphExecDestroy(replay));
    cuda_ok(cudaGraphDestroy(graph));
    cuda_ok(cudaStreamDestroy(stream));
    cuda_ok(cudaFree(other));
  }
}

}  // namespace
}  // namespace ferry::test
