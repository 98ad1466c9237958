// Options that several commands share, and what their values mean in this build.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "ferry/exchange.h"

namespace ferry::app {

// Backends that Ferry knows; `why_missing` is null where this build has it.
struct Backend {
  const char* name;
  const char* ranks_are;
  const char* why_missing;
};
const std::vector<Backend>& backends();

void add_backend_option(CLI::App& command, std::string& backend);  // --backend auto|cpu|shmem|cuda|nvshmem
void add_json_flag(CLI::App& command, bool& json);                 // --json
void add_format_option(CLI::App& command, std::string& format);    // --format, checked by format_named when used
void add_combine_option(CLI::App& command, std::string& combine);  // --combine exact|by_rank

// The backend that `name` (or auto) stands for. Throws Error(unsupported) where this build lacks it.
const Backend& choose_backend(const std::string& name);

// Throws Error(invalid_argument).
Reduction reduction_named(const std::string& name);
// Throws Error(invalid_argument) that names the option unless low <= value <= high.
void require_in_range(const char* option, std::int64_t value, std::int64_t low, std::int64_t high);
// Throws Error(invalid_argument) unless the ranks fit the backend and the nodes fit both.
void require_ranks(const Backend& backend, int ranks, int nodes);
void require_input_scale(float input_scale);

}  // namespace ferry::app
