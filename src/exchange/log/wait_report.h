// describe: the sentence that a failed wait becomes.
#pragma once

#include <string>

#include "ferry/error.h"

namespace ferry {

// One sentence: who waited for whom, in which phase, and what to do; epochs are for the debug log alone. `reason`: of a
// rank that aborted.
std::string describe(const WaitRecord& record, const std::string& reason = {});

// Throws what ended an exchange: PeerMissing, or Error(invalid_argument) where the ranks gave different handles.
[[noreturn]] void throw_ended(const WaitRecord& record, const char* addition = "");

}  // namespace ferry
