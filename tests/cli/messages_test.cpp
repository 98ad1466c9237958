// What the commands say in their own words: no name of a call or a field of the library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "ferry/error.h"
#include "tool/ranks/gpus.h"
#include "tool/ranks/job/job.h"
#include "tool/ranks/shape_names.h"

namespace ferry::app {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string refusal_of(const Shape& shape) {
  try {
    require_shape(shape);
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
}

TEST(ShapesOfCommands, AreRefusedWhereTheLibraryRefusesThem) {
  std::mt19937 random(1);
  const auto one_of = [&](std::initializer_list<int> values) { return values.begin()[random() % values.size()]; };
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    const Shape shape{one_of({-1, 0, 1, 4, 64, 2048, 2049}), one_of({0, 1, 7, 64, 4096}), one_of({0, 1, 8, 32, 33}),
                      one_of({0, 1, 4096, 1 << 24, 1 << 30}), one_of({0, 31, 32, 100, 7168})};
    const std::string said = refusal_of(shape);
    EXPECT_EQ(said.empty(), why_invalid(shape) == nullptr) << to_string(shape) << ": " << said;
    for (const char* of_library : {"max_tokens", "top_k", "impossible", "ranks="})
      EXPECT_THAT(said, Not(HasSubstr(of_library)));
    refused += said.empty() ? 0 : 1;
  }
  EXPECT_GT(refused, 10000);
  EXPECT_LT(refused, 20000);
}

TEST(ShapesOfCommands, NameTheOptionTheValueAndTheLimit) {
  EXPECT_EQ(refusal_of({.ranks = 9, .experts = 8, .top_k = 2, .max_tokens = 1, .hidden = 32}),
            "--ranks 9: must be at most the number of experts, 8: every rank owns one or more");
  EXPECT_EQ(refusal_of({.ranks = 4, .experts = 8, .top_k = 33, .max_tokens = 1, .hidden = 32}),
            "--top-k 33: must be 1 to 8, the number of experts: those of a token are distinct");
  EXPECT_EQ(refusal_of({.ranks = 4, .experts = 8, .top_k = 2, .max_tokens = 1, .hidden = 100}),
            "--hidden 100: must be a positive multiple of 32");
  EXPECT_EQ(refusal_of({.ranks = 4, .experts = 8, .top_k = 2, .max_tokens = 0, .hidden = 32}).substr(0, 23),
            "--tokens 0: must be 1 t");
}

// The largest number that the message names works, and the next does not.
TEST(ShapesOfCommands, NameTheLargestNumberOfTokens) {
  Shape shape{.ranks = 4, .experts = 1000, .top_k = 2, .max_tokens = 2'200'000, .hidden = 32};
  const std::string said = refusal_of(shape);
  const std::size_t at = said.find("1 to ");
  ASSERT_NE(at, std::string::npos) << said;
  shape.max_tokens = std::stoi(said.substr(at + 5));
  EXPECT_EQ(why_invalid(shape), nullptr);
  ++shape.max_tokens;
  EXPECT_NE(why_invalid(shape), nullptr);
}

TEST(ShapesOfCommands, NameTheLargestNumberOfExperts) {
  Shape shape{.ranks = 4, .experts = 2'000'000'000, .top_k = 2, .max_tokens = 128, .hidden = 64};
  const std::string said = refusal_of(shape);
  const std::string must = "--experts 2000000000: must be at most ";
  ASSERT_EQ(said.substr(0, must.size()), must);
  shape.experts = std::stoi(said.substr(must.size()));
  shape.max_tokens = 1;
  EXPECT_EQ(why_invalid(shape), nullptr);
  ++shape.experts;
  EXPECT_NE(why_invalid(shape), nullptr);
}

TEST(MissingRanks, AreNamedWithoutCallsOfTheLibrary) {
  WaitRecord record;
  record.operation = Operation::set_up;
  record.my_rank = record.reported_by = 1;
  record.missing_rank = 2;
  const char* of_library = "rank 1: rank 2 did not come to set-up call 4 within the deadline, or give a mask";
  EXPECT_THAT(message_of(PeerMissing(record, of_library)),
              testing::AllOf(HasSubstr("rank 1: rank 2 did not come within the deadline of 30 s;"),
                             Not(HasSubstr("--deadline")), Not(HasSubstr("set-up call")), Not(HasSubstr("mask"))));
  record.absence = Absence::ended;  // no time went by, so no deadline is named
  EXPECT_EQ(message_of(PeerMissing(record, of_library)),
            "rank 1: the process of rank 2 has ended; see what rank 2 printed");
  record.absence = Absence::late;
  record.reported_by = 0;
  EXPECT_THAT(message_of(PeerMissing(record, of_library)), HasSubstr("the deadline of rank 0;"));
  record.missing_rank = 1;
  EXPECT_THAT(message_of(PeerMissing(record, of_library)), HasSubstr("rank 1 came too late"));
  set_job_deadline(kDefaultDeadline, "--deadline");  // as a command does that has the option
  EXPECT_THAT(message_of(PeerMissing(record, of_library)), HasSubstr("--deadline"));
  set_job_deadline(kDefaultDeadline, "");
  EXPECT_EQ(message_of(Error(ErrorKind::io, "--output y: cannot be written")), "--output y: cannot be written");
}

TEST(NoGpu, IsSaidWithItsReason) {
  EXPECT_EQ(why_no_gpu_is_found(0, 13000, "CUDA driver version is insufficient for CUDA runtime version"),
            "no GPU was found: this machine has no NVIDIA driver (libcuda.so.1)");
  EXPECT_THAT(why_no_gpu_is_found(12040, 13000, "CUDA driver version is insufficient for CUDA runtime version"),
              testing::AllOf(HasSubstr("for CUDA 12.4"), HasSubstr("13.0 or newer")));
  EXPECT_EQ(why_no_gpu_is_found(13000, 13000, "no CUDA-capable device is detected"),
            "no GPU was found (no CUDA-capable device is detected)");
  EXPECT_EQ(why_no_gpu_is_found(13000, 13000, ""), "no GPU was found (the driver lists none)");
}

}  // namespace
}  // namespace ferry::app
