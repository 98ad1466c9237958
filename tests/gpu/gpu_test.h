// Tests that need a GPU.
#pragma once

#include <gtest/gtest.h>

#include "ferry/cuda/cuda_world.h"

namespace ferry::test {

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU was found";
  }
};

}  // namespace ferry::test
