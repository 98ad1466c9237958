// What FERRY_DEBUG and FERRY_DEBUG_FILE mean. tests/cli/test_debug_log.py looks at what is written.
#include "base/debug_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

#include "ferry/world.h"

namespace ferry {
namespace {

DebugLevel level_of(const char* value) {
  bool is_known = false;
  const DebugLevel level = debug_level_of(value, is_known);
  EXPECT_TRUE(is_known);
  return level;
}

TEST(DebugLevels, HaveNames) {
  for (const char* nothing : {static_cast<const char*>(nullptr), "", "0", "off"})
    EXPECT_EQ(level_of(nothing), DebugLevel::off);
  EXPECT_EQ(level_of("warn"), DebugLevel::warn);
  EXPECT_EQ(level_of("info"), DebugLevel::info);
  EXPECT_EQ(level_of("1"), DebugLevel::info);
  EXPECT_EQ(level_of("trace"), DebugLevel::trace);
  EXPECT_EQ(level_of("INFO"), DebugLevel::info);  // as NCCL_DEBUG has it
  EXPECT_EQ(level_of("Warn"), DebugLevel::warn);
}

TEST(DebugLevels, AreOffWhereTheValueMeansNothing) {
  bool is_known = true;
  EXPECT_EQ(debug_level_of("INFORM", is_known), DebugLevel::off);
  EXPECT_FALSE(is_known);
}

TEST(DebugLevels, MakeNoTextThatIsNotWritten) {
  if (debug_logs(DebugLevel::warn)) GTEST_SKIP() << "FERRY_DEBUG is set";
  debug_log(DebugLevel::warn, 0, []() -> std::string {
    ADD_FAILURE() << "the text was made";
    return {};
  });
}

// run_ranks gives the error back as it is, and that has no rank.
TEST(DebugLogDeathTest, NamesTheRankWhoseBodyThrew) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the variables are read once in a process
  const auto throw_on_one = [] {
    setenv("FERRY_DEBUG", "warn", 1);
    try {
      run_ranks(3, [](World& world) {
        if (world.rank() == 2) throw std::runtime_error("the file is empty");
      });
    } catch (const std::runtime_error&) {
      std::_Exit(0);
    }
    std::_Exit(1);
  };
  EXPECT_EXIT(throw_on_one(), testing::ExitedWithCode(0), "rank 2 warn: its body threw: the file is empty\n");
}

TEST(DebugFile, HasHostAndProcessInItsName) {
  EXPECT_EQ(debug_file_name("/tmp/log"), "/tmp/log");
  EXPECT_EQ(debug_file_name("a.%p.log"), "a." + std::to_string(getpid()) + ".log");
  char host[256] = {};
  ASSERT_EQ(gethostname(host, sizeof host - 1), 0);
  EXPECT_EQ(debug_file_name("%h-%p%"), std::string(host) + "-" + std::to_string(getpid()) + "%");
}

}  // namespace
}  // namespace ferry
