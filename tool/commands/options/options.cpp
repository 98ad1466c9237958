#include "tool/commands/options/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <vector>

#include "tool/ranks/job/job.h"

namespace ferry::app {

namespace {

constexpr std::array kReductions = {Reduction::by_rank, Reduction::exact, Reduction::either};

Reduction named(const std::string& option, const std::string& name, const std::vector<std::string>& allowed) {
  for (const Reduction reduction : kReductions)
    if (name == to_string(reduction) && std::find(allowed.begin(), allowed.end(), name) != allowed.end())
      return reduction;
  throw Error(ErrorKind::invalid_argument, fmt::format("{} {}: must be {}", option, name, fmt::join(allowed, " or ")));
}

}  // namespace

std::vector<std::string> combine_names() { return {to_string(Reduction::by_rank), to_string(Reduction::exact)}; }

std::vector<std::string> reduction_names() {
  std::vector<std::string> names;
  for (const Reduction reduction : kReductions) names.emplace_back(to_string(reduction));
  return names;
}

Reductions reductions_named(const std::string& reduction, const std::string& combine) {
  Reductions found;
  if (!reduction.empty()) found.of_exchange = named("--reduction", reduction, reduction_names());
  if (!combine.empty()) found.of_combine = named("--combine", combine, combine_names());
  if (combine.empty() && !found.choose()) found.of_combine = found.of_exchange;
  if (reduction.empty()) found.of_exchange = found.of_combine;
  if (!found.choose() && found.of_exchange != found.of_combine)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("--combine {}: with --reduction {} every combine is {}; --reduction either has both",
                            combine, reduction, reduction));
  return found;
}

std::vector<std::string> result_format_names() {
  std::vector<std::string> names;
  for (const AnyFormat& format : result_formats()) names.emplace_back(format.name());
  return names;
}

std::string result_format_help() {
  return fmt::format("Format in which results travel home: {}", fmt::join(result_format_names(), ", "));
}

std::vector<std::string> row_order_names(RowOrders orders) {
  std::vector<std::string> names;
  for (int i = 0; i < kRowOrders; ++i)
    if (orders.has(static_cast<RowOrder>(i))) names.emplace_back(to_string(static_cast<RowOrder>(i)));
  return names;
}

RowOrder row_order_named(const std::string& name) {
  for (int i = 0; i < kRowOrders; ++i)
    if (name == to_string(static_cast<RowOrder>(i))) return static_cast<RowOrder>(i);
  throw Error(ErrorKind::invalid_argument, fmt::format("--rows {}: is no order of rows", name));
}

std::vector<AnyFormat> formats_named(const std::vector<std::string>& names) {
  if (std::find(names.begin(), names.end(), "all") != names.end()) return {all_formats().begin(), all_formats().end()};
  std::vector<AnyFormat> formats;
  for (const std::string& name : names) formats.push_back(format_named(name));
  return formats;
}

void note_unused_input_scale(float input_scale, const AnyFormat& format) {
  if (input_scale != 1.0f && !format.takes_input_scale())
    note(fmt::format("--input-scale {} has no effect: format {} has no scale of the whole tensor", input_scale,
                     format.name()));
}

void note(const std::string& text) {
  if (process_number() == 0) std::fprintf(stderr, "ferry: note: %s\n", text.c_str());
}

void note_unused_share_gpus(const Backend& backend) {
  if (gpus_are_shared() && !is_gpu_backend(backend))
    note(fmt::format("--share-gpus has no effect: the ranks are {}", backend.ranks_are));
}

void note_repeated(const Backend& backend) {
  if (backend.ranks == RanksAre::processes || num_processes() == 1) return;
  note(
      fmt::format("{} processes were started, and each runs the whole command and writes its files: the ranks of "
                  "--backend {} are {}. Start it without the launcher, or take --backend processes or shmem",
                  num_processes(), backend.name, backend.ranks_are));
}

}  // namespace ferry::app
