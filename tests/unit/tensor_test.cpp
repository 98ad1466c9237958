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

}  // namespace
}  // namespace ferry
