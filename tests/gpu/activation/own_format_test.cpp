// SwiGLU into formats from outside the library, compiled into kernels: the bytes of the CPU's.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "device_case.h"
#include "support/own_formats.h"

namespace ferry::test {
namespace {

// Sigmoids of 32 and more are 1 for CPU and GPU, so the encoders get the same float32. One row has a NaN.
TEST(CompiledSwiglu, GivesTheBytesOfTheCpu) {
  FERRY_SKIP_WITHOUT_GPU();
  std::mt19937 random(41);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  for (const OwnFormat& own : own_formats())
    for (const bool interleaved : {false, true})
      for (const int inter : {32, 96, 2880}) {
        ActivationShape shape;
        shape.inter = inter;
        shape.options.interleaved = interleaved;
        ActivationCase one(own.format, shape, static_cast<unsigned>(inter));
        for (std::size_t row = 0; row < one.capacity(); ++row)
          for (std::size_t column = 0; column < static_cast<std::size_t>(inter); ++column)
            one.set_gate_up(row, column, 32.0f + std::fabs(normal(random)), normal(random));
        one.set_gate_up(7, 1, 32.0f, std::numeric_limits<float>::quiet_NaN());
        ActivationCase got = one;
        DeviceCase device(got);
        device.run_compiled(own.swiglu);
        device.read(got.payload, got.scales);
        one.run();
        ASSERT_EQ(got.payload, one.payload) << own.format.name() << " inter " << inter;
        ASSERT_EQ(got.scales, one.scales) << own.format.name() << " inter " << inter;
      }
}

// A block encodes a row in shared memory, which has 227 KiB at most.
TEST(CompiledSwiglu, RefusesARowThatABlockCannotHold) {
  FERRY_SKIP_WITHOUT_GPU();
  ActivationShape shape;
  shape.inter = 65536;
  shape.row_offsets = {0, 2};
  ActivationCase one(any_format<Int8Block64>(), shape, 1);
  DeviceCase device(one);
  try {
    device.run_compiled(own_formats().front().swiglu);
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_NE(std::string(error.what()).find("inter 65536"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ferry::test
