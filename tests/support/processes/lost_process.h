// A rank whose process is killed, or stopped.
#pragma once

#include <string>

#include "ferry/ferry.h"

namespace ferry::test {

inline constexpr int kLostProcess = 1;  // the rank

// Collective, on host memory. Rank kLostProcess gets a signal, SIGKILL or SIGSTOP, at a point of a round
// (before_set_up, before_dispatch, after_async, before_combine); the others name it, are refused, and go on without it.
// Throws where they do not.
void lose_a_process(World& world, const std::string& when, int signal);

}  // namespace ferry::test
