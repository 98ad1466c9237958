// The log that the environment variable FERRY_DEBUG asks for: worlds, how ranks reach each other, memory, and the
// kernels that were chosen and refused, a line for each with its rank. Without the variable nothing is ever written.
//
//   FERRY_DEBUG       warn: calls that threw; info (or 1): set-up, too; trace: every call, too; unset, empty, off or 0:
//                     nothing
//   FERRY_DEBUG_FILE  the file that lines are appended to, in place of standard error; %h is the host, %p the process.
//                     Where it cannot be opened or written, standard error says so once, and has the lines from there
//                     on
#pragma once

#include <cstdint>
#include <string>

namespace ferry {

enum class DebugLevel : std::uint8_t { off, warn, info, trace };

inline constexpr int kOfProcess = -1;  // in place of a rank: of all ranks of the process

// Whether lines of the level are written. From any thread; the variables are read once, at the first call.
bool debug_logs(DebugLevel level);

// Writes one line in one piece, so that lines of many threads and processes do not mix. Where standard error takes
// nothing the line is lost: what is logged goes on.
void write_debug_line(DebugLevel level, int rank, const std::string& text);

// `text` is a function that makes the line, called only where it is written.
template <class Text>
void debug_log(DebugLevel level, int rank, const Text& text) {
  if (debug_logs(level)) write_debug_line(level, rank, text());
}

// What the value of FERRY_DEBUG means, in capitals or not; null: unset. `is_known` is false for a value that means
// nothing.
DebugLevel debug_level_of(const char* value, bool& is_known);
// The name of a log file: %h and %p replaced.
std::string debug_file_name(const std::string& pattern);

}  // namespace ferry
