// What the benchmarks take as numbers: all of a word, within its limits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "benchmarks/numbers.h"

namespace ferry::app {
namespace {

template <class Read>
std::string refusal(const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(BenchmarkNumbers, AreReadWhole) {
  EXPECT_EQ(whole_number("N", "128", 0), 128);
  EXPECT_EQ(whole_number("N", "0", 0), 0);
  EXPECT_EQ(whole_number("HIDDEN", "16384", 32, 16384, 32), 16384);
  EXPECT_EQ(finite_number("WIRE", "396.5"), 396.5);
}

TEST(BenchmarkNumbers, AreRefusedWithTheirLimits) {
  for (const char* text : {"abc", "", "12x", " 12", "1.5", "-1", "99999999999"})
    EXPECT_EQ(refusal([&] { whole_number("N", text, 0); }),
              std::string("N is \"") + text + "\"; it must be a whole number, 0 or more");
  for (const char* text : {"0", "16", "48", "16416"})
    EXPECT_EQ(refusal([&] { whole_number("HIDDEN", text, 32, 16384, 32); }),
              std::string("HIDDEN is \"") + text + "\"; it must be a whole number, 32 to 16384, and a multiple of 32");
  for (const char* text : {"abc", "", "inf", "nan", "3x", "1e999"})
    EXPECT_EQ(refusal([&] { finite_number("WIRE", text); }),
              std::string("WIRE is \"") + text + "\"; it must be a number");
}

TEST(BenchmarkNumbers, MayBeTwoInAWord) {
  EXPECT_EQ(split_at("24/132", '/').before, "24");
  EXPECT_EQ(split_at("24/132", '/').behind, "132");
  EXPECT_FALSE(split_at("24", '/').has_mark);
  EXPECT_TRUE(split_at("24/", '/').has_mark);
}

}  // namespace
}  // namespace ferry::app
