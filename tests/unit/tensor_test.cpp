// Tensor: strides, what counts as contiguous, and the limit on its axes.
#include "ferry/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace ferry {
namespace {

TEST(Tensor, TakesItsShapeFromAListOrFromAVector) {
  float values[24] = {};
  const std::vector<std::int64_t> extents = {2, 3, 4};
  for (const Tensor& tensor : {Tensor(values, DType::f32, {2, 3, 4}), Tensor(values, DType::f32, extents)}) {
    EXPECT_EQ(tensor.rank, 3);
    EXPECT_EQ(tensor.elements(), 24);
    EXPECT_THAT(tensor.strides, testing::ElementsAre(12, 4, 1, 0, 0));
    EXPECT_TRUE(tensor.is_contiguous());
  }
}

TEST(Tensor, IsContiguousOnlyWithoutGaps) {
  float values[24] = {};
  Tensor rows(values, DType::f32, {2, 3});
  rows.strides[0] = 4;
  EXPECT_FALSE(rows.is_contiguous());
  rows.shape[0] = 1;  // the stride of a single row does not matter
  EXPECT_TRUE(rows.is_contiguous());
}

TEST(Tensor, RefusesMoreAxesThanItHolds) {
  float value = 0;
  const std::vector<std::int64_t> extents(kMaxTensorRank + 1, 1);
  EXPECT_THROW(Tensor(&value, DType::f32, extents), Error);
  EXPECT_NO_THROW(Tensor(&value, DType::f32, {1, 1, 1, 1, 1}));
}

TEST(Tensor, LiesWhereItsOwnerSays) {
  float values[6] = {};
  EXPECT_EQ(Tensor(values, DType::f32, {2, 3}).device, Device{});
  EXPECT_EQ(Tensor().device.kind, Device::Kind::unknown);
  const Tensor on_gpu(values, DType::f32, {2, 3}, Device::cuda(1));
  EXPECT_EQ(on_gpu.device, Device::cuda(1));
  EXPECT_EQ(ConstTensor(on_gpu).device, Device::cuda(1));
  EXPECT_FALSE(Device::cuda(0) == Device::cuda(1));
  EXPECT_EQ(to_string(Device{}), "unknown");
  EXPECT_EQ(to_string(Device::cpu()), "cpu");
  EXPECT_EQ(to_string(Device::cuda(3)), "cuda:3");
}

TEST(Tensor, GivesItsElementsAsTheCallerKnowsThem) {
  float values[2] = {1, 2};
  const Tensor tensor(values, DType::f32, {2});
  tensor.as<float>()[1] = 3;
  EXPECT_EQ(ConstTensor(tensor).as<float>()[1], 3);
  static_assert(std::is_same_v<decltype(ConstTensor(tensor).as<float>()), const float*>);
}

}  // namespace
}  // namespace ferry
