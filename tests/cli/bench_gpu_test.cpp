// The bytes, the floor and the line through the wire's points of GPU measurements, and their records: tested without a
// GPU.
#include "tool/bench/gpu/bench_gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tool/bench/base/bench_routing.h"

namespace ferry::app {
namespace {

// Every token names every expert, so each rank gets every token once and all its rows.
BenchCase everything() {
  BenchCase bench;
  bench.shape = {.ranks = 4, .experts = 8, .top_k = 8, .max_tokens = 10, .hidden = 256};
  bench.format = format_named("fp8_block128");
  return bench;
}

constexpr double kMessage = 256 + 2 * 4 + 8;  // payload, two scales, up to 16 bytes
constexpr double kRouting = 3 * (10 * 8 * 8 + 64) + 4 * 6;

TEST(GpuBytes, WhereEveryTokenNamesEveryExpert) {
  const GpuBytes bytes = gpu_bytes(everything(), 3);
  EXPECT_DOUBLE_EQ(bytes.dispatch.wire, 3 * 10 * (kMessage + 8) + kRouting);
  EXPECT_DOUBLE_EQ(bytes.dispatch.device, 10 * 512 + 2 * 40 * kMessage + 80 * (256 + 8));
  EXPECT_DOUBLE_EQ(bytes.combine.wire, 3 * 10 * (512 + 8));
  EXPECT_DOUBLE_EQ(bytes.combine.device, 80 * 512 + 2 * 40 * 512 + 10 * 512);
}

TEST(GpuBytes, OfExactAreThoseOfRows) {
  BenchCase bench = everything();
  bench.reduction = Reduction::exact;
  const GpuBytes bytes = gpu_bytes(bench, 1);
  EXPECT_DOUBLE_EQ(bytes.combine.wire, 3 * 2 * 10 * (512 + 8));
  EXPECT_DOUBLE_EQ(bytes.combine.device, 80 * 512 + 2 * 80 * 512 + 10 * 512);
}

TEST(GpuBytes, AreThoseOfTheBusiestRank) {
  BenchCase bench = everything();
  bench.shape.top_k = 1;
  bench.shape.max_tokens = 400;
  bench.routing = RoutingKind::zipf;
  bench.zipf_exponent = 10;  // nearly every token names one expert, whose rank gets them from three others
  const GpuBytes bytes = gpu_bytes(bench, 1);
  EXPECT_GT(bytes.dispatch.wire, 2.9 * 400 * (kMessage + 8));
  EXPECT_LT(bytes.dispatch.wire, 3.1 * 400 * (kMessage + 8 + 8));
}

TEST(FitLine, FindsRateAndLatency) {
  GpuSpeeds speeds;
  for (const double bytes : {1e5, 1e6, 1e7, 1e8}) speeds.wire.push_back({bytes, 3e-6 + bytes / 350e9, 32});
  fit_line(speeds);
  EXPECT_NEAR(speeds.wire_bytes_per_second, 350e9, 1e3);
  EXPECT_NEAR(speeds.wire_latency, 3e-6, 1e-12);
}

GpuSpeeds some_speeds() {
  GpuSpeeds speeds;
  speeds.wire_bytes_per_second = 100e9;
  speeds.wire_latency = 3e-6;
  speeds.copies = {{"slow", 800e9}, {"fast", 1000e9}, {"middling", 900e9}};
  take_fastest_copy(speeds);
  return speeds;
}

TEST(TakeFastestCopy, TakesItsRateAndItsName) {
  const GpuSpeeds speeds = some_speeds();
  EXPECT_EQ(speeds.copy_bytes_per_second, 1000e9);
  EXPECT_STREQ(speeds.copy_method, "fast");
}

class FakeBench final : public GpuBench {
 public:
  const GpuSpeeds& speeds() const override { return speeds_; }
  const std::string& hardware() const override { return hardware_; }
  const char* backend() const override { return "cuda"; }
  GpuMeasurement measure(const BenchCase&, bool) override { return {}; }

 private:
  GpuSpeeds speeds_ = some_speeds();
  std::string hardware_ = "4 x GPU";
};

TEST(GpuRecord, SaysHowCopiesWereMade) {
  const FakeBench bench;
  GpuResult result{everything(), &bench.speeds(), {}};
  result.bench.operation = BenchOperation::pair;
  result.measured.dispatch.seconds = result.measured.pair.seconds = {10e-6};
  const Json wire = to_json(result, bench, "ferry bench")["wire"];
  EXPECT_EQ(wire["copy_gb_per_s"], 1000);
  EXPECT_EQ(wire["copy_method"], "fast");
  ASSERT_EQ(wire["copies"].size(), 3u);
  EXPECT_EQ(wire["copies"][2], (Json{{"method", "middling"}, {"gb_per_s", 900}}));
  EXPECT_THAT(to_text({result}, bench), testing::HasSubstr("copies in device memory 1000 GB/s (fast)"));
}

TEST(GpuFootnote, SaysThatTimesAreThoseOfEvents) {
  const GpuSpeeds speeds = some_speeds();
  GpuResult result{everything(), &speeds, {}};
  result.measured.dispatch.seconds = result.measured.pair.seconds = {10e-6};
  EXPECT_THAT(footnote_of({result}), testing::AllOf(testing::HasSubstr("events"), testing::HasSubstr("slowest rank")));
  EXPECT_THAT(footnote_of({result}), testing::Not(testing::HasSubstr("begin")));
}

TEST(GpuResult, FloorAndBoundTakeTheSlowerOfWireAndMemory) {
  const GpuSpeeds speeds = some_speeds();
  GpuResult result{everything(), &speeds, {}};
  result.measured.bytes = {{1e6, 5e6}, {1e6, 20e6}};  // dispatch: 10 us of wire; combine: 20 us of memory
  result.bench.operation = BenchOperation::dispatch;
  EXPECT_DOUBLE_EQ(result.floor_seconds(), 13e-6);
  EXPECT_DOUBLE_EQ(result.bound_seconds(), 6.5e-6 + 11e-6);
  result.bench.operation = BenchOperation::combine;
  EXPECT_DOUBLE_EQ(result.floor_seconds(), 23e-6);
  EXPECT_DOUBLE_EQ(result.bound_seconds(), 6.5e-6 + 22e-6);
  result.bench.operation = BenchOperation::pair;
  EXPECT_DOUBLE_EQ(result.floor_seconds(), 36e-6);
}

// One rank sends nothing: its wire is as fast as copies.
TEST(FindRates, TakesCopiesWhereNothingIsSent) {
  GpuSpeeds speeds;
  speeds.copies = {{"copy", 800e9}};
  find_rates(speeds);
  EXPECT_EQ(speeds.wire_bytes_per_second, 800e9);
  for (const double bytes : {1e5, 1e6, 1e7}) speeds.wire.push_back({bytes, 2e-6 + bytes / 100e9, 32});
  find_rates(speeds);
  EXPECT_NEAR(speeds.wire_bytes_per_second, 100e9, 1e3);
}

// A kernel of one block, and one with two blocks for each multiprocessor.
TEST(SmTime, IsThatOfEachKernelsMultiprocessors) {
  EXPECT_DOUBLE_EQ(sm_seconds_of({{1, 0.25}, {264, 0.75}}, 8e-6, 132), 2e-6 * 1 + 6e-6 * 132);
  GpuMeasurement measured;
  measured.dispatch.seconds = {8e-6};
  measured.pair.seconds = {20e-6};
  EXPECT_FALSE(measured.sm_seconds(BenchOperation::pair).has_value());
  measured.multiprocessors = 132;
  measured.dispatch_kernels = {{1, 0.25}, {264, 0.75}};
  measured.pair_kernels = {{1, 0.1}, {264, 0.3}, {24, 0.6}};
  EXPECT_DOUBLE_EQ(measured.sm_seconds(BenchOperation::dispatch).value(), 794e-6);
  EXPECT_DOUBLE_EQ(measured.sm_seconds(BenchOperation::combine).value(), 12e-6 * 24);
}

TEST(SmTime, StandsInRecordsAndTables) {
  const FakeBench bench;
  GpuResult result{everything(), &bench.speeds(), {}};
  result.measured.dispatch.seconds = {10e-6};
  result.measured.pair.seconds = {30e-6};
  EXPECT_THAT(to_json(result, bench, "ferry bench").dump(), testing::Not(testing::HasSubstr("sm_us")));  // not known
  EXPECT_THAT(footnote_of({result}), testing::HasSubstr("SM us"));
  result.measured.multiprocessors = 132;
  result.measured.dispatch_kernels = {{100, 1}};
  result.measured.pair_kernels = {{100, 0.4}, {50, 0.6}};
  result.bench.operation = BenchOperation::pair;
  const Json pair = to_json(result, bench, "ferry bench");
  EXPECT_EQ(pair["sm_us"], 2100);
  EXPECT_EQ(pair["kernels"]["of"], "pair");
  EXPECT_EQ(pair["kernels"]["in_order"][1], (Json{{"blocks", 50}, {"share", 0.6}}));
  EXPECT_THAT(to_text({result}, bench), testing::HasSubstr("2100"));
}

TEST(GpuBytes, OfGivenIdsAreThoseOfTheirRouting) {
  const BenchCase bench = everything();
  std::vector<std::vector<std::int32_t>> ids;
  for (int rank = 0; rank < bench.shape.ranks; ++rank) ids.push_back(make_routing(bench, rank, 0).ids);
  EXPECT_EQ(gpu_bytes_of(bench, ids).dispatch.wire, gpu_bytes(bench, 1).dispatch.wire);
  for (std::vector<std::int32_t>& each : ids) each.clear();  // no tokens
  EXPECT_EQ(gpu_bytes_of(bench, ids).combine.wire, 0);
}

TEST(GpuMeasurement, CombineIsThePairLessTheMedianDispatch) {
  GpuMeasurement measured;
  measured.dispatch.seconds = {2, 1, 3};
  measured.pair.seconds = {5, 7, 4};
  EXPECT_EQ(measured.samples(BenchOperation::combine).seconds, (std::vector<double>{3, 5, 2}));
  EXPECT_EQ(measured.samples(BenchOperation::pair).seconds, measured.pair.seconds);
}

}  // namespace
}  // namespace ferry::app
