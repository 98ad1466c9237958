// The table of `ferry bench` on CPU ranks, from made-up results.
#include "tool/bench/cpu/bench_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <sstream>

#include "tool/bench/base/bench_fields.h"
#include "tool/bench/cpu/bench_exchange.h"

namespace ferry::app {
namespace {

BenchResult result(BenchOperation operation = BenchOperation::pair) {
  BenchResult made;
  made.bench.operation = operation;
  made.bench.shape = {.ranks = 2, .experts = 8, .top_k = 2, .max_tokens = 234, .hidden = 256};
  made.measured.samples.seconds = {10e-6, 20e-6, 30e-6, 40e-6, 1e-3};
  made.measured.bytes = {1e6, 0, 0, 0, 0, 1e6};
  made.measured.wire.bytes_per_second = 100e9;
  return made;
}

// The words of a line of the table, which comes after a rule.
std::vector<std::string> row(const std::string& text, std::size_t index) {
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line) && !line.starts_with("---")) continue;
  for (std::size_t i = 0; i <= index; ++i) std::getline(lines, line);
  std::istringstream words(line);
  return {std::istream_iterator<std::string>(words), {}};
}

TEST(BenchTable, HasTimesFloorBoundAndBaseline) {
  BenchResult with = result();
  with.baseline = BaselineMeasurement{{{60e-6}}, "MPI", 2};
  const std::string text = to_text(std::vector<BenchResult>{with, result()});
  EXPECT_THAT(row(text, 0),
              testing::ElementsAre("pair", "bf16", "by_rank", "uniform", "234", "10.0", "30.0", "1000.0", "1000.0",
                                   "2.00", "MB", "100.0", "20.0", "1.50", "22.0", "1.36", "60.0", "0.50"));
  const std::vector<std::string> without = row(text, 1);
  EXPECT_THAT(std::vector(without.end() - 6, without.end()),
              testing::ElementsAre("20.0", "1.50", "22.0", "1.36", "-", "-"));
}

TEST(BenchTable, WithoutBaselinesHasNoColumnForThem) {
  EXPECT_THAT(to_text(std::vector<BenchResult>{result()}), testing::Not(testing::HasSubstr("MPI")));
}

TEST(BenchTable, OfCodecsHasTheirSpeed) {
  const std::string text = to_text(std::vector<BenchResult>{result(BenchOperation::encode)});
  EXPECT_THAT(row(text, 0),
              testing::ElementsAre("encode", "bf16", "256", "234", "10.0", "30.0", "1000.0", "1000.0", "33.33"));
}

TEST(BenchFootnote, SaysWhatATimeIs) {
  const std::string exchange = footnote_of({result()});
  EXPECT_THAT(exchange, testing::HasSubstr("from the first rank's begin to the last rank's end"));
  EXPECT_THAT(exchange, testing::HasSubstr("n: tokens of each rank"));
  EXPECT_THAT(exchange, testing::ContainsRegex("something[ \n]+else[ \n]+slowed[ \n]+the[ \n]+wire[ \n]+down"));
  const std::string codec = footnote_of({result(BenchOperation::encode)});
  EXPECT_THAT(codec, testing::HasSubstr("one core"));
  EXPECT_THAT(codec, testing::Not(testing::HasSubstr("rank")));
}

TEST(BenchFootnote, SaysThatTheWireWasDisturbed) {
  BenchResult disturbed = result();
  disturbed.measured.wire.spread = 3.14;
  EXPECT_THAT(footnote_of({result(), disturbed}),
              testing::HasSubstr("The wire was disturbed: its slow copies (p90) took up "
                                 "to 3.1 times"));
  EXPECT_THAT(footnote_of({result()}), testing::Not(testing::HasSubstr("disturbed")));
}

TEST(BenchBound, TakesTheMeetingThatNothingDisturbed) {
  const std::vector<std::vector<Span>> meetings = {{{0, 2e-6}, {1, 1 + 1e-3}, {2, 2 + 3e-6}, {3, 3 + 3e-6}},
                                                   {{0, 9e-3}, {1, 1 + 1e-6}, {2, 2 + 4e-6}, {3 - 1e-3, 3 + 2e-6}}};
  EXPECT_NEAR(shortest_meeting(meetings), 4e-6, 1e-9);
}

TEST(BenchBound, HasAMeetingForEachPhase) {
  BenchResult made = result();  // 20 us of a floor
  made.measured.meeting_seconds = 1e-6;
  EXPECT_NEAR(made.bound_seconds(), 24e-6, 1e-12);
  made.bench.operation = BenchOperation::dispatch;
  made.measured.bytes = {2e6, 0, 0, 0, 0, 0};
  EXPECT_NEAR(made.bound_seconds(), 23e-6, 1e-12);
}

// Half a median for each of two meetings is the most.
TEST(BenchFootnote, SaysThatMeetingsWereDisturbed) {
  BenchResult steady = result();
  steady.measured.meeting_seconds = 15e-6;
  EXPECT_FALSE(steady.meetings_were_disturbed());
  EXPECT_THAT(footnote_of({steady}), testing::Not(testing::HasSubstr("meetings")));
  BenchResult disturbed = result();
  disturbed.measured.meeting_seconds = 15.5e-6;
  EXPECT_TRUE(disturbed.meetings_were_disturbed());
  disturbed.bench.operation = BenchOperation::dispatch;
  EXPECT_FALSE(disturbed.meetings_were_disturbed());
  disturbed.measured.meeting_seconds = 11565e-6;
  EXPECT_THAT(footnote_of({steady, disturbed}),
              testing::ContainsRegex(
                  "disturbed[ \n]+the[ \n]+meetings[^.]+11565.0[ \n]+us,[ \n]+longer[ \n]+than[ \n]+a[ \n]+round"));
}

TEST(TableOfFields, WantsTheSameColumnsInEveryRow) {
  const Fields one = codec_fields(result().bench);
  Fields more = one;
  more.push_back(ratio_field("ratio", "x", 2));
  EXPECT_EQ(Table({one, one}).text().find("operation"), 0u);
  EXPECT_THROW(Table({one, more}), std::logic_error);
}

}  // namespace
}  // namespace ferry::app
