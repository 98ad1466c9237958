// Options that several commands share, and what their values mean in this build.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "ferry/exchange.h"
#include "ferry/ranks.h"

namespace ferry::app {

void add_backend_option(CLI::App& command, std::string& backend);  // --backend auto|cpu|shmem|cuda|nvshmem
void add_json_flag(CLI::App& command, bool& json);                 // --json
void add_format_option(CLI::App& command, std::string& format);    // --format, checked by format_named when used
void add_combine_option(CLI::App& command, std::string& combine);  // --combine exact|by_rank

// Throws Error(invalid_argument).
Reduction reduction_named(const std::string& name);
// Throws Error(invalid_argument) that names the option unless low <= value <= high.
void require_in_range(const char* option, std::int64_t value, std::int64_t low, std::int64_t high);
void require_input_scale(float input_scale);

}  // namespace ferry::app
