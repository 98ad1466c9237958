// Which word somebody may have meant.
#include "tool/command_line/nearest.h"

#include <gtest/gtest.h>

namespace ferry::app {
namespace {

const std::vector<std::string> kOptions = {"--ranks", "--tokens", "--top-k", "--format", "--output"};

TEST(Nearest, FindsMistypedWords) {
  EXPECT_EQ(nearest("--rank", kOptions), "--ranks");
  EXPECT_EQ(nearest("--tokesn", kOptions), "--tokens");
  EXPECT_EQ(nearest("--topk", kOptions), "--top-k");
  EXPECT_EQ(nearest("--Format", kOptions), "--format");
}

TEST(Nearest, FindsByTheBeginning) {
  const std::vector<std::string> formats = {"bf16", "fp8_block128", "fp8_block128_ue8m0", "mxfp8"};
  EXPECT_EQ(nearest("FP8", formats), "fp8_block128");
  EXPECT_EQ(nearest("fp8_block128_", formats), "fp8_block128");
}

TEST(Nearest, FindsWhatAGpuIsCalled) {
  EXPECT_EQ(nearest("GPU", std::vector<std::string>{"auto", "cpu", "cuda"}), "cuda");
  EXPECT_EQ(nearest("gpu", std::vector<std::string>{"auto", "cpu"}), "cpu");
}

TEST(Nearest, FindsNothingWhereNothingIsNear) {
  EXPECT_EQ(nearest("--colour", kOptions), "");
  EXPECT_EQ(did_you_mean("--colour", kOptions), "");
  EXPECT_EQ(nearest("x", {}), "");
  EXPECT_EQ(nearest("--output", std::vector<std::string>{"--input", "--payload"}), "") << "the opposite";
  EXPECT_EQ(nearest("fish", std::vector<std::string>{"bash", "zsh"}), "") << "another shell";
  EXPECT_EQ(nearest("bsah", std::vector<std::string>{"bash", "zsh"}), "bash");
}

}  // namespace
}  // namespace ferry::app
