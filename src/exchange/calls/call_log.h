// Calls of an exchange in the log of FERRY_DEBUG: how long each took on the host, or what it threw.
#pragma once

#include <chrono>
#include <exception>
#include <string>

#include "base/debug_log.h"

namespace ferry {

template <class Body>
void logged(const char* call, int rank, const Body& body) {
  if (!debug_logs(DebugLevel::warn)) return body();
  const auto start = std::chrono::steady_clock::now();
  try {
    body();
  } catch (const std::exception& error) {
    write_debug_line(DebugLevel::warn, rank, std::string(call) + " threw: " + error.what());
    throw;
  }
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start);
  debug_log(DebugLevel::trace, rank,
            [&] { return std::string(call) + ": " + std::to_string(took.count()) + " us on the host"; });
}

}  // namespace ferry
