// The parser's options as `ferry` has them: their checks, their help, and what several commands share.
#include "tool/command_line/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <sstream>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include "ferry/ferry.h"
#include "tool/command_line/nearest.h"
#include "tool/commands/options/models.h"
#include "tool/ranks/ranks.h"
#include "tool/text/output.h"
#include "tool/text/table.h"

namespace ferry::app {
namespace {

constexpr std::size_t kNameColumn = 32;  // of a help

std::map<const CLI::Option*, std::vector<std::string>>& values_by_option() {
  static std::map<const CLI::Option*, std::vector<std::string>> values;
  return values;
}

std::string text_of(double value) { return fmt::format("{:g}", value); }
template <class Integer>
std::string text_of(Integer value) {
  return fmt::format("{}", value);
}

template <class Number>
constexpr Number kNumberLimit = std::numeric_limits<Number>::max();
template <>
constexpr std::int64_t kNumberLimit<std::int64_t> = kNoLimit;

// Throws what the option must be where its value does not fit.
CLI::Option* checked(CLI::Option* option, const std::function<std::string(std::string_view text)>& what_it_must_be) {
  const auto check = [name = option->get_name(), what_it_must_be](std::string& text) -> std::string {
    const std::string must_be = what_it_must_be(text);
    if (must_be.empty()) return {};
    throw Error(ErrorKind::invalid_argument, fmt::format("{} {}: must be {}", name, text, must_be));
  };
  return option->check(CLI::Validator(check, ""));
}

// The whole text as a number; what it holds where it is none, or is too large.
template <class Number>
std::errc read_number(std::string_view text, Number& value) {
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failure == std::errc() && end != text.data() + text.size() ? std::errc::invalid_argument : failure;
}

template <class Number>
CLI::Option* limited(CLI::Option* option, Number low, Number high) {
  return checked(option, [low, high](std::string_view text) -> std::string {
    Number value{};
    const std::errc failure = read_number(text, value);
    if (failure == std::errc() && value >= low && value <= high) return {};
    const bool is_too_large = failure == std::errc::result_out_of_range || value > high;
    std::string range = high == kNumberLimit<Number> && !is_too_large
                            ? fmt::format("{} or more", text_of(low))
                            : fmt::format("{} to {}", text_of(low), text_of(high));
    if (failure != std::errc::invalid_argument) return range;
    return (std::is_integral_v<Number> ? "a whole number, " : "a number, ") + range;
  });
}

class HelpFormat final : public CLI::Formatter {
 public:
  HelpFormat() { column_width(kNameColumn); }

  // One empty line before each group.
  std::string make_usage(const CLI::App* app, std::string name) const override {
    return CLI::Formatter::make_usage(app, std::move(name)) + "\n";
  }
  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    return CLI::Formatter::make_group(std::move(group), is_positional, std::move(options)).substr(1);
  }

  // Sentences are broken; what can be typed, which is indented, is not.
  std::string make_footer(const CLI::App* app) const override {
    std::istringstream footer(CLI::Formatter::make_footer(app));
    std::string text;
    for (std::string line; std::getline(footer, line);)
      text += line.empty() || line.starts_with(' ') ? line + "\n" : wrapped(line);
    return text;
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_items_expected_max() == 0) return {};
    const bool many = option->get_expected_max() == CLI::detail::expected_max_vector_size;
    return " " + option->get_type_name() + (many ? ",..." : "");
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = option->get_description();
    std::string value = option->get_default_str();
    if (value.starts_with('[')) value = value.substr(1, value.size() - 2);
    if (option->get_required()) text += " (required)";
    if (!value.empty() && value != "\"\"" && option->get_items_expected_max() != 0) text += fmt::format(" [{}]", value);
    return in_lines(text, line_width() - kNameColumn);
  }
};

}  // namespace

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const AnyFormat& format : all_formats()) names.push_back(format.name());
  return names;
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Model& model : kModels) names.emplace_back(model.name);
  return names;
}

CLI::Option* one_of(CLI::Option* option, const std::vector<std::string>& values, const std::string& type) {
  values_by_option()[option] = values;
  option->type_name(type.empty() ? fmt::format("{}", fmt::join(values, "|")) : type);
  const auto check = [name = option->get_name(), values](std::string& text) -> std::string {
    if (std::find(values.begin(), values.end(), text) != values.end()) return {};
    throw Error(ErrorKind::invalid_argument, not_one_of(name, text, values));
  };
  return option->check(CLI::Validator(check, ""));
}

CLI::Option* in_range(CLI::Option* option, std::int64_t low, std::int64_t high) { return limited(option, low, high); }
CLI::Option* in_range(CLI::Option* option, double low, double high) { return limited(option, low, high); }

CLI::Option* zero_or_one_of(CLI::Option* option, const std::vector<int>& values, const std::string& zero) {
  const std::vector<int> before(values.begin(), values.end() - 1);
  const std::string allowed = fmt::format("0 ({}), {} or {}", zero, fmt::join(before, ", "), values.back());
  return checked(option, [values, allowed](std::string_view text) -> std::string {
    int value = 0;
    const bool is_allowed = read_number(text, value) == std::errc() &&
                            (value == 0 || std::find(values.begin(), values.end(), value) != values.end());
    return is_allowed ? "" : allowed;
  });
}

CLI::Option* as_path(CLI::Option* option, const char* type) {
  return checked(option->type_name(type), [](std::string_view text) {
    return text == "-" ? "a name: nothing goes by standard input or output here; ./- is what has this name" : "";
  });
}

CLI::Option* add_file(CLI::App& command, const char* names, std::string& path, const char* help) {
  return as_path(command.add_option(names, path, help), "FILE");
}

CLI::Option* add_file_or_output(CLI::App& command, const char* names, std::string& path, const char* help) {
  return command.add_option(names, path, help)->type_name(kFileOrOutput);
}

CLI::Option* add_seed_option(CLI::App& command, std::uint64_t& seed, const char* help) {
  return limited(command.add_option("--seed", seed, help)->capture_default_str(), std::uint64_t{0},
                 kNumberLimit<std::uint64_t>);
}

CLI::Option* add_input_scale_option(CLI::App& command, float& input_scale, const char* help) {
  CLI::Option* option = command.add_option("--input-scale", input_scale, help)->capture_default_str();
  return checked(option, [](std::string_view text) {
    float value = 0;
    const bool fits = read_number(text, value) == std::errc() && std::isfinite(value) && value > 0;
    return fits ? "" : "finite and greater than 0";
  });
}

void offer(CLI::Option* option, const std::vector<std::string>& values) { values_by_option()[option] = values; }

std::vector<std::string> values_of(const CLI::Option& option) {
  const auto found = values_by_option().find(&option);
  return found == values_by_option().end() ? std::vector<std::string>() : found->second;
}

std::shared_ptr<CLI::Formatter> help_format() { return std::make_shared<HelpFormat>(); }

const char* const kBackendHelp =
    "What the ranks are: auto takes GPUs where there are enough, else the processes of a launcher over OpenSHMEM, else "
    "threads";

const char* const kCombineHelp =
    "exact: every expert row travels back; by_rank: one partial sum per (token, rank) does";

const char* const kReductionHelp =
    "Reduction of the exchange; left out: that of --combine. either: each combine chooses, and those of this command "
    "take "
    "--combine; memory is that of exact (docs/results.md)";

const char* const kCopiesHelp =
    "Copies of the message slots: with 4, rows in_place stay until the third next dispatch (docs/tuning.md)";

const char* const kHelpEnd =
    "Exit code: 0 done; 2 bad use: options, or arrays that do not fit; 1 failed: files, memory, checks.\n"
    "`ferry help COMMAND`, or `ferry COMMAND --help`, explains a command.";

void add_backend_option(CLI::App& command, std::string& backend, const char* help) {
  std::vector<std::string> names = {"auto"};
  for (const Backend& known : backends()) names.emplace_back(known.name);
  one_of(command.add_option("--backend", backend, help), names)->capture_default_str();
}

CLI::Option* add_list(CLI::App& command, const char* name, std::vector<std::string>& values, const std::string& help,
                      const std::vector<std::string>& allowed, const std::string& type) {
  return one_of(command.add_option(name, values, help)->delimiter(',')->capture_default_str(), allowed, type);
}

std::vector<std::string> and_all(std::vector<std::string> names) {
  names.emplace_back("all");
  return names;
}

void add_formats_option(CLI::App& command, std::vector<std::string>& formats) {
  add_list(command, "--format", formats, fmt::format("Token formats: {}, or all", fmt::join(format_names(), ", ")),
           and_all(format_names()), "FORMAT");
}

std::vector<std::string> message_copies_allowed() { return {"2", "4"}; }

void add_json_flag(CLI::App& command, bool& json, const char* help) { command.add_flag("--json", json, help); }

void add_quiet_flag(CLI::App& command) {
  command.add_flag_callback("-q,--quiet", be_quiet, "Say nothing of how far it is, on standard error");
}

}  // namespace ferry::app
