// What the files share that know the parser, which takes long to compile: no others include this.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace ferry::app {

std::vector<std::string> format_names();
std::vector<std::string> model_names();

// Refuses every value but these, and the message lists them. The help shows `type` ("FORMAT") where the value stands;
// where `type` is empty, it shows all values.
CLI::Option* one_of(CLI::Option* option, const std::vector<std::string>& values, const std::string& type = "");
// Refuses values outside low..high and words that are no numbers. The message says both limits; with kNoLimit it says
// the lower one alone.
inline constexpr std::int64_t kNoLimit = std::numeric_limits<int>::max();
CLI::Option* in_range(CLI::Option* option, std::int64_t low, std::int64_t high);
CLI::Option* in_range(CLI::Option* option, double low, double high);
// Refuses every number but 0 and these, and words that are no numbers. `zero` says what 0 stands for.
CLI::Option* zero_or_one_of(CLI::Option* option, const std::vector<int>& values, const std::string& zero);

// Values that completion offers, beside which others may be given.
void offer(CLI::Option* option, const std::vector<std::string>& values);

// All that one_of lets the option be, or offer named, which completion offers; empty where neither was called for it.
std::vector<std::string> values_of(const CLI::Option& option);

// Help of lines of at most line_width() characters.
std::shared_ptr<CLI::Formatter> help_format();

// ---- options that several commands share
void add_backend_option(CLI::App& command, std::string& backend, const char* help);
// The value is a path: of a FILE or a DIR. "-" is refused, since it is standard input or output elsewhere.
CLI::Option* as_path(CLI::Option* option, const char* type);
CLI::Option* add_file(CLI::App& command, const char* names, std::string& path, const char* help);
// Or "-", for standard output.
inline constexpr const char* kFileOrOutput = "FILE|-";
CLI::Option* add_file_or_output(CLI::App& command, const char* names, std::string& path, const char* help);
CLI::Option* add_seed_option(CLI::App& command, std::uint64_t& seed, const char* help);
CLI::Option* add_input_scale_option(CLI::App& command, float& input_scale, const char* help);
// Values with commas between them.
CLI::Option* add_list(CLI::App& command, const char* name, std::vector<std::string>& values, const std::string& help,
                      const std::vector<std::string>& allowed, const std::string& type = "");
std::vector<std::string> and_all(std::vector<std::string> names);
void add_formats_option(CLI::App& command, std::vector<std::string>& formats);
std::vector<std::string> message_copies_allowed();
void add_json_flag(CLI::App& command, bool& json, const char* help = "Print JSON instead of a table");
void add_quiet_flag(CLI::App& command);

extern const char* const kBackendHelp;    // the help of --backend
extern const char* const kCombineHelp;    // of --combine
extern const char* const kReductionHelp;  // of --reduction
extern const char* const kCopiesHelp;     // of --message-copies
extern const char* const kHelpEnd;        // of every help: exit codes, and how to get a help

void add_bench_command(CLI::App& app);

}  // namespace ferry::app
