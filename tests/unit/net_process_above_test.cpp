// The process above, of processes that are started here.
#include "net/host/process_above.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

namespace ferry::net {
namespace {

// In a new process: sends what is found above it through the pipe. `deep`: from a process of its own.
[[noreturn]] void tell(bool deep, int pipe) {
  prctl(PR_SET_NAME, "below");  // it has its parent's name
  if (deep && fork() != 0) {
    wait(nullptr);
    _exit(0);
  }
  const std::string found = process_above("a) proxy") + ";";
  _exit(write(pipe, found.data(), found.size()) < 0 ? 1 : 0);
}

// "FOUND;FOUND;", by a child of the proxy and by a child's child.
std::string found_below_a_proxy() {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return "";
  const pid_t proxy = fork();
  if (proxy == 0) {
    prctl(PR_SET_NAME, "a) proxy");
    for (const bool deep : {false, true}) {
      if (fork() == 0) tell(deep, ends[1]);
      wait(nullptr);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string found;
  std::array<char, 256> part{};
  for (ssize_t got = read(ends[0], part.data(), part.size()); got > 0; got = read(ends[0], part.data(), part.size()))
    found.append(part.data(), static_cast<std::size_t>(got));
  close(ends[0]);
  waitpid(proxy, nullptr, 0);
  return found;
}

TEST(ProcessAbove, IsTheSameForAllBelowIt) {
  const std::string found = found_below_a_proxy();
  const std::string first = found.substr(0, found.find(';'));
  ASSERT_FALSE(first.empty());
  EXPECT_EQ(found, first + ";" + first + ";");
}

TEST(ProcessAbove, IsAnotherForAnotherOne) { EXPECT_NE(found_below_a_proxy(), found_below_a_proxy()); }

TEST(ProcessAbove, IsNoneWhereNoneHasTheName) { EXPECT_EQ(process_above("no such name"), ""); }

}  // namespace
}  // namespace ferry::net
