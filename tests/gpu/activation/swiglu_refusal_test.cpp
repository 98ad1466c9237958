// What cuda_swiglu refuses before anything is enqueued, and bad device values that must not become a wild write.
#include <gtest/gtest.h>

#include <functional>

#include "device_case.h"
#include "examples/int8_block64.h"

namespace ferry::test {
namespace {

using Spoil = std::function<void(ActivationCase&, DeviceCase&, CudaLaunch&)>;

void expect_refused(const char* format, ErrorKind kind, const Spoil& spoil, const std::vector<std::string>& parts) {
  ActivationCase one(format_named(format), ActivationShape{}, 1);
  DeviceCase device(one);
  CudaLaunch launch;
  EXPECT_NO_THROW(device.run(launch)) << "the call is refused before it is spoilt";
  device.reset();
  spoil(one, device, launch);
  try {
    device.run(launch);
    ADD_FAILURE() << "taken, and should say " << testing::PrintToString(parts);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << " is not in: " << error.what();
  }
  std::vector<std::uint16_t> payload;
  std::vector<std::uint32_t> scales;
  device.read(payload, scales);
  EXPECT_EQ(payload, one.payload);
  EXPECT_EQ(scales, one.scales);
}

TEST(CudaSwigluRefuses, HostMemory) {
  FERRY_SKIP_WITHOUT_GPU();
  const auto kind = ErrorKind::invalid_argument;
  expect_refused("nvfp4", kind, [](auto& one, auto& d, auto&) { d.in.rows.data = one.input().rows.data; },
                 {"rows at 0x", "host memory"});
  expect_refused("nvfp4", kind, [](auto& one, auto& d, auto&) { d.in.row_offsets.data = one.input().row_offsets.data; },
                 {"row_offsets at 0x", "host memory"});
  expect_refused("nvfp4", kind, [](auto& one, auto& d, auto&) { d.in.scales_offsets.data = one.scales_offsets.data(); },
                 {"scales_offsets at 0x", "host memory"});
  expect_refused("nvfp4", kind, [](auto& one, auto& d, auto&) { d.out.scales.data = one.scales.data(); },
                 {"scales at 0x", "host memory"});
  alignas(16) static std::byte host[1 << 16];
  expect_refused("nvfp4", kind, [](auto&, auto& d, auto&) { d.out.payload.data = host; },
                 {"payload at 0x", "host memory"});
}

// Where the owner of a tensor says where it lies, the driver is not asked.
TEST(CudaSwigluRefuses, WhatTheOwnerCallsHostMemoryOrMemoryOfAnotherDevice) {
  FERRY_SKIP_WITHOUT_GPU();
  const auto kind = ErrorKind::invalid_argument;
  expect_refused("nvfp4", kind, [](auto&, auto& d, auto&) { d.in.rows.device = Device::cpu(); },
                 {"rows is host memory", "memory of a GPU"});
  expect_refused("nvfp4", kind, [](auto&, auto& d, auto&) { d.out.scales.device = Device::cpu(); },
                 {"scales is host memory"});
  expect_refused("nvfp4", kind, [](auto&, auto& d, auto&) { d.out.payload.device = Device::cuda(7); },
                 {"payload is memory of device 7", "rows is memory of device"});
}

TEST(CudaSwigluRefuses, AnotherDevice) {
  FERRY_SKIP_WITHOUT_GPU();
  if (num_cuda_devices() < 2) GTEST_SKIP() << "one GPU was found, two are needed";
  cuda_ok(cudaSetDevice(1));
  {
    const std::vector<std::byte> zeros(1 << 16);
    const DeviceCopy elsewhere(zeros.data(), zeros.size());
    cudaStream_t stream = nullptr;
    cuda_ok(cudaStreamCreate(&stream));
    cuda_ok(cudaSetDevice(0));
    expect_refused("mxfp8", ErrorKind::invalid_argument,
                   [&](auto&, auto& d, auto&) { d.out.scales.data = elsewhere.data(); },
                   {"scales is memory of device 1", "rows is memory of device 0"});
    expect_refused("mxfp8", ErrorKind::invalid_argument,
                   [&](auto&, auto& d, auto&) { d.in.row_offsets.data = elsewhere.data(); },
                   {"row_offsets is memory of device 1"});
    expect_refused("mxfp8", ErrorKind::invalid_argument, [&](auto&, auto&, auto& launch) { launch.stream = stream; },
                   {"stream is of device 1", "rows is memory of device 0"});
    cuda_ok(cudaStreamDestroy(stream));
  }
  cuda_ok(cudaSetDevice(0));
}

TEST(CudaSwigluRefuses, WhatTheCpuRefuses) {
  FERRY_SKIP_WITHOUT_GPU();
  const auto kind = ErrorKind::invalid_argument;
  const auto moved = [](const void* data, int bytes) { return static_cast<const std::byte*>(data) + bytes; };
  expect_refused("bf16", kind, [&](auto&, auto& d, auto&) { d.in.rows.data = moved(d.in.rows.data, 8); },
                 {"rows starts at 0x", "multiple of 16"});
  expect_refused("bf16", kind,
                 [&](auto&, auto& d, auto&) { d.out.payload.data = static_cast<std::byte*>(d.out.payload.data) + 2; },
                 {"payload starts at 0x", "multiple of 16"});
  expect_refused("fp8_block128", kind,
                 [&](auto&, auto& d, auto&) { d.out.scales.data = static_cast<std::byte*>(d.out.scales.data) + 2; },
                 {"scales starts at 0x", "multiple of 4"});
  expect_refused("bf16", kind, [](auto&, auto& d, auto&) { d.in.rows.shape[1] = 100; }, {"rows has 100 columns"});
  expect_refused("mxfp4", kind, [](auto&, auto& d, auto&) { d.out.payload.shape[0] = 140; }, {"payload", "144"});
  expect_refused("mxfp4", kind, [](auto&, auto& d, auto&) { d.in.row_offsets = {}; }, {"row_offsets is not given"});
  expect_refused("mxfp4", kind, [](auto&, auto&, auto& launch) { launch.max_blocks = -1; }, {"max_blocks is -1"});
}

TEST(CudaSwigluRefuses, AFormatWithoutKernels) {
  FERRY_SKIP_WITHOUT_GPU();
  ActivationCase one(any_format<Int8Block64>(), ActivationShape{}, 1);
  DeviceCase device(one);
  try {
    device.run();
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_NE(std::string(error.what()).find("int8_block64"), std::string::npos) << error.what();
  }
}

// More rows than there is room for, groups out of order, tiles far away: nothing behind the tensors is written.
TEST(CudaSwigluValues, BadOffsetsOnTheDeviceWriteNowhereElse) {
  FERRY_SKIP_WITHOUT_GPU();
  for (const char* name : {"bf16", "mxfp8", "nvfp4"}) {
    for (const std::vector<std::uint32_t>& offsets :
         {std::vector<std::uint32_t>{0, 5, 5, 140, 4000000000u}, {0, 90, 20, 140, 141}, {77, 5, 200, 3, 100}}) {
      ActivationCase one(format_named(name), ActivationShape{}, 1);
      one.payload.resize(one.payload.size() + 4096, 0xa5a5);
      one.scales.resize(one.scales.size() + 4096, 0xa5a5a5a5u);
      DeviceCase device(one);
      const std::size_t payload_words = one.payload.size() - 4096;
      const std::size_t scale_words = one.scales.size() - 4096;
      const DeviceCopy bad(offsets.data(), 20);
      const std::vector<std::uint32_t> tiles{0, 1u << 30, 2, 0xffffff00u};
      const DeviceCopy far(tiles.data(), 16);
      device.in.row_offsets.data = bad.data();
      if (one.tiled()) device.in.scales_offsets.data = far.data();
      device.run();
      std::vector<std::uint16_t> payload;
      std::vector<std::uint32_t> scales;
      device.read(payload, scales);
      for (std::size_t i = payload_words; i < payload.size(); ++i) ASSERT_EQ(payload[i], 0xa5a5) << name;
      for (std::size_t i = scale_words; i < scales.size(); ++i) ASSERT_EQ(scales[i], 0xa5a5a5a5u) << name;
    }
  }
}

}  // namespace
}  // namespace ferry::test
