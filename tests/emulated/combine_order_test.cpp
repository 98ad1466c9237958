// Which number a combine gets and whether it waits, as far as the host knows: calls in a capture, in another one, and
// beside captures. What the device makes of it: GpuHandles.CallsBesideCapturedGraphs.
#include "cuda/exchange/order/combine_order.h"

#include <gtest/gtest.h>

namespace ferry::test {
namespace {

using cuda::CaptureId;
using cuda::CombineNumber;
using cuda::CombineOrder;
using cuda::kNoCapture;

constexpr CaptureId kOne = 7;
constexpr CaptureId kOther = 8;

void expect(const CombineOrder::Start& start, CombineNumber number, bool waits) {
  EXPECT_EQ(start.number, number);
  EXPECT_EQ(start.waits, waits);
}

TEST(CombineOrder, KnowsAllBeforeAnythingWasCaptured) {
  CombineOrder order;
  order.begin_dispatch(kNoCapture, false);
  expect(order.next_combine(kNoCapture, false, false), CombineNumber::of_dispatch, false);
  expect(order.next_combine(kNoCapture, true, true), CombineNumber::own, false);
  order.begin_combine(kNoCapture, true, false);
  expect(order.next_combine(kNoCapture, false, false), CombineNumber::own, true);
  expect(order.next_combine(kNoCapture, true, true), CombineNumber::own, true);
  order.begin_dispatch(kNoCapture, false);
  expect(order.next_combine(kNoCapture, false, false), CombineNumber::of_dispatch, false);
}

// One that chooses its reduction has a number of its own, and waits where one that is not told would ask the device.
TEST(CombineOrder, OfToldCombinesWithoutAHandle) {
  CombineOrder order;
  order.begin_dispatch(kNoCapture, false);
  expect(order.next_combine(kNoCapture, true, false), CombineNumber::own, false);
  order.begin_combine(kNoCapture, false, false);
  expect(order.next_combine(kNoCapture, true, false), CombineNumber::own, true);
  order.begin_dispatch(kOne, false);
  expect(order.next_combine(kOne, true, false), CombineNumber::own, false);
  expect(order.next_combine(kOther, true, false), CombineNumber::own, true);
  order.begin_dispatch(kNoCapture, false);
  expect(order.next_combine(kNoCapture, true, false), CombineNumber::own, false);
  order.begin_combine(kOther, true, false);
  order.begin_dispatch(kNoCapture, false);
  expect(order.next_combine(kNoCapture, true, false), CombineNumber::own, true);
}

TEST(CombineOrder, WaitsBesideHalves) {
  CombineOrder order;
  order.begin_dispatch(kNoCapture, true);
  expect(order.next_combine(kNoCapture, true, true), CombineNumber::own, true);
  order.end_dispatch();
  expect(order.next_combine(kNoCapture, true, true), CombineNumber::own, false);
  order.begin_combine(kNoCapture, true, true);
  order.begin_dispatch(kNoCapture, false);
  order.end_combine();
  expect(order.next_combine(kNoCapture, false, false), CombineNumber::own, true);
  order.begin_dispatch(kNoCapture, false);
  expect(order.next_combine(kNoCapture, false, false), CombineNumber::of_dispatch, false);
}

// What came after a dispatch that was refused has done nothing, but half a combine from before it is half done still.
TEST(CombineOrder, ForgetsWhatCameAfterARefusedDispatch) {
  CombineOrder order;
  const auto dispatch = [&] {
    const std::uint32_t number = order.number_dispatch(kNoCapture);
    order.begin_dispatch(kNoCapture, false);
    return number;
  };
  std::uint32_t refused = dispatch();
  order.begin_combine(kNoCapture, true, true);
  dispatch();
  dispatch();
  CombineOrder::DoneNothing since = order.give_up_since(refused);
  EXPECT_EQ(since.dispatches, 2u);
  EXPECT_TRUE(since.half_combine);
  dispatch();
  expect(order.next_combine(kNoCapture, false, false), CombineNumber::of_dispatch, false);

  order.begin_combine(kNoCapture, true, true);
  refused = dispatch();
  since = order.give_up_since(refused);
  EXPECT_EQ(since.dispatches, 0u);
  EXPECT_FALSE(since.half_combine);
  dispatch();
  expect(order.next_combine(kNoCapture, false, false), CombineNumber::own, true);
  EXPECT_TRUE(order.give_up_since(0).half_combine);  // it was captured: nobody knows
}

TEST(CombineOrder, KnowsTheCaptureOfItsDispatch) {
  CombineOrder order;
  order.begin_dispatch(kOne, false);
  expect(order.next_combine(kOne, false, false), CombineNumber::of_dispatch, false);
  expect(order.next_combine(kOne, true, true), CombineNumber::own, false);
  order.begin_combine(kOne, true, false);
  expect(order.next_combine(kOne, false, false), CombineNumber::own, true);
}

TEST(CombineOrder, KnowsNothingOfOtherCaptures) {
  CombineOrder order;
  order.begin_dispatch(kNoCapture, false);
  expect(order.next_combine(kOne, true, true), CombineNumber::own, true);
  expect(order.next_combine(kOne, false, false), CombineNumber::found, true);
  order.begin_dispatch(kOne, false);
  expect(order.next_combine(kOther, true, true), CombineNumber::own, true);
  expect(order.next_combine(kOther, false, false), CombineNumber::found, true);
}

// A rank that replays graphs without handles does as one that captures nothing.
TEST(CombineOrder, StaysCarefulOnceACallWasCaptured) {
  CombineOrder order;
  order.begin_dispatch(kOne, false);
  order.begin_combine(kOne, false, false);
  order.begin_dispatch(kNoCapture, false);
  expect(order.next_combine(kNoCapture, false, false), CombineNumber::of_dispatch, false);
  expect(order.next_combine(kNoCapture, true, true), CombineNumber::own, true);
  order.begin_combine(kOther, true, false);
  for (int turn = 0; turn < 3; ++turn) {
    order.begin_dispatch(kNoCapture, false);
    expect(order.next_combine(kNoCapture, false, false), CombineNumber::found, true);
    expect(order.next_combine(kNoCapture, true, true), CombineNumber::own, true);
  }
}

}  // namespace
}  // namespace ferry::test
