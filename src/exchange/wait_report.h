// describe: the sentence that a failed wait becomes.
#pragma once

#include <string>

#include "ferry/error.h"

namespace ferry {

// One sentence: who waited for whom, in which phase, and what to do.
std::string describe(const WaitRecord& record);

}  // namespace ferry
