#include "base/byte_size.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

constexpr std::size_t kMega = std::size_t{1} << 20;

TEST(BytesOfSize, TakesUnitsAndFractions) {
  EXPECT_EQ(bytes_of_size("4096"), 4096u);
  EXPECT_EQ(bytes_of_size("64k"), 65536u);
  EXPECT_EQ(bytes_of_size("512M"), 512 * kMega);
  EXPECT_EQ(bytes_of_size("2G"), 2048 * kMega);
  EXPECT_EQ(bytes_of_size("2GB"), 2048 * kMega);
  EXPECT_EQ(bytes_of_size("1e9"), 1'000'000'000u);
  EXPECT_EQ(bytes_of_size("1.5G"), 1536 * kMega);
  EXPECT_EQ(bytes_of_size("0.25t"), 256 * 1024 * kMega);
}

TEST(BytesOfSize, KnowsNoOtherText) {
  for (const char* text : {"", "G", "x", "2 G", "2X", "1.5.2G", "-1G", "nan", "inf", "infG", "1e19", "99999999T"})
    EXPECT_EQ(bytes_of_size(text), 0u) << text;
}

}  // namespace
}  // namespace ferry
