// The subcommands of `ferry`. Each function adds one to the parser; its callback does the work and throws on failure.
//
// Exit codes: 0 when what was asked was done, 2 for bad use (ErrorKind::invalid_argument, and what the parser refuses),
// 1 for every other failure.
#pragma once

#include <CLI/CLI.hpp>
#include <stdexcept>
#include <string>

namespace ferry::app {

// What was asked was carried out and came out wrong: a check or a conformance case failed. Exit code 1.
class CommandFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

void add_demo_command(CLI::App& app);
void add_layer_command(CLI::App& app);
void add_codec_command(CLI::App& app);
void add_verify_command(CLI::App& app);
void add_info_command(CLI::App& app);

}  // namespace ferry::app
