// The shared options: their texts, and the refusals of values that cannot work.
#include "ferry/options.h"

#include <fmt/format.h>

#include <cmath>

namespace ferry::app {

void add_backend_option(CLI::App& command, std::string& backend) {
  std::vector<std::string> names = {"auto"};
  for (const Backend& known : backends()) names.emplace_back(known.name);
  command
      .add_option(
          "--backend", backend,
          "What the ranks are: auto takes the processes of a job, else GPUs where there are enough, else threads")
      ->check(CLI::IsMember(names))
      ->capture_default_str();
}

void add_json_flag(CLI::App& command, bool& json) { command.add_flag("--json", json, "Print JSON instead of a table"); }

void add_format_option(CLI::App& command, std::string& format) {
  std::string names;
  for (const AnyFormat& known : all_formats()) names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name());
  command.add_option("--format", format, "Token format: " + names)->capture_default_str();
}

void add_combine_option(CLI::App& command, std::string& combine) {
  command
      .add_option("--combine", combine,
                  "exact: every expert row travels back; by_rank: one bf16 partial sum per (token, rank) does")
      ->check(CLI::IsMember({"exact", "by_rank"}))
      ->capture_default_str();
}

Reduction reduction_named(const std::string& name) {
  if (name == "exact") return Reduction::exact;
  if (name == "by_rank") return Reduction::by_rank;
  throw Error(ErrorKind::invalid_argument, fmt::format("--combine {}: must be exact or by_rank", name));
}

void require_in_range(const char* option, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high)
    throw Error(ErrorKind::invalid_argument, fmt::format("{} {}: must be {} to {}", option, value, low, high));
}

void require_input_scale(float input_scale) {
  if (!std::isfinite(input_scale) || input_scale <= 0)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("--input-scale {}: must be finite and greater than 0", input_scale));
}

}  // namespace ferry::app
