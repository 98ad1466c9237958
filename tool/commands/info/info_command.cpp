// `ferry info`: what this machine has, what each backend would use, and the memory a shape needs on every rank.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "ferry/ferry.h"
#include "tool/commands/info/info_plan.h"
#include "tool/commands/options/commands.h"
#include "tool/commands/options/options.h"
#include "tool/io/memory.h"
#include "tool/ranks/gpus.h"
#include "tool/ranks/job/job.h"
#include "tool/text/table.h"

namespace ferry::app {
namespace {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

std::string simd() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") != 0)
    return __builtin_cpu_supports("avx512bf16") != 0 ? "AVX-512 with bf16" : "AVX-512";
  if (__builtin_cpu_supports("avx2") != 0) return "AVX2";
  return "SSE2";
#elif defined(__aarch64__)
  return "NEON";
#else
  return "none known";
#endif
}

unsigned cpu_cores() { return std::max(1u, std::thread::hardware_concurrency()); }

Json cpu_device() {
  return {{"kind", "cpu"},
          {"name", cpu_name()},
          {"cores", cpu_cores()},
          {"simd", simd()},
          {"memory_bytes", total_memory()},
          {"memory_available_bytes", memory_left()}};
}

Json gpu_device(const GpuInfo& gpu) {
  return {{"kind", "gpu"},
          {"name", gpu.name},
          {"multiprocessors", gpu.multiprocessors},
          {"memory_bytes", gpu.memory_bytes},
          {"memory_available_bytes", gpu.memory_available_bytes},
          {"l2_bytes", gpu.l2_bytes},
          {"reaches", gpu.reaches}};
}

std::string device_text(const std::vector<GpuInfo>& found, const std::string& label) {
  std::string text = wrapped(fmt::format("{}, {} cores, {}, {} of memory ({} available)", cpu_name(), cpu_cores(),
                                         simd(), human_bytes(total_memory()), human_bytes(memory_left())),
                             label);
  for (std::size_t device = 0; device < found.size(); ++device)
    text += wrapped(
        fmt::format("{}, {} multiprocessors, {} of memory ({} available), reaches GPUs {}", found[device].name,
                    found[device].multiprocessors, human_bytes(found[device].memory_bytes),
                    human_bytes(found[device].memory_available_bytes),
                    found[device].reaches.empty() ? "none" : fmt::format("{}", fmt::join(found[device].reaches, ", "))),
        fmt::format("GPU {}: ", device));
  return text;
}

std::string use_of(const Backend& known) {
  if (std::string why = known.why_missing(); !why.empty()) return why;
  if (known.kind == WorldKind::cuda || known.kind == WorldKind::cuda_processes)
    return fmt::format("ranks are {}, 1 to {}, one node; links are loads and stores of peer memory; CUDA {}",
                       known.ranks_are, known.most_ranks(), gpus().versions());
  if (known.kind == WorldKind::processes)
    return fmt::format("ranks are {}, {} here, one node; links are shared memory", known.ranks_are, known.most_ranks());
  if (known.ranks == RanksAre::processes)
    return fmt::format("ranks are {}, {} here; links are shared memory within a host and the network between hosts",
                       known.ranks_are, known.most_ranks());
  return fmt::format("ranks are {}, 1 to {}, one node; links are shared memory", known.ranks_are, known.most_ranks());
}

constexpr const char* kMissing = "not here, see below";
constexpr const char* kMissingBesidePlan = "not here";
constexpr const char* kWhyMissing = "Why a backend is not here, and what to do: `ferry info` without a shape.\n";

Table backend_table(const char* missing) {
  Table table({{"backend", "backend", true}, {"works", "here", true}, {"use", "what it would use", true}});
  for (const Backend& known : backends()) {
    const bool works = known.why_missing().empty();
    Cell use = text_cell(use_of(known));
    if (!works) use.text = missing;
    table.add_row({text_cell(known.name), {works, works ? "yes" : "no", works ? Tone::good : Tone::faint}, use});
  }
  return table;
}

// Why a backend is missing, which is too long for a table.
std::string missing_text() {
  std::string text;
  std::size_t longest = 0;
  for (const Backend& known : backends())
    if (!known.why_missing().empty()) longest = std::max(longest, std::string_view(known.name).size());
  for (const Backend& known : backends())
    if (const std::string why = known.why_missing(); !why.empty())
      text += wrapped(why, fmt::format("  {:<{}}  ", known.name, longest));
  return text.empty() ? text : "\nNot here, and what to do:\n" + text;
}

// The options that only a shape gives an effect, as far as they are given.
std::vector<std::string> given_of_plan(const InfoArguments& asked) {
  const InfoArguments defaults;
  std::vector<std::string> given;
  for (const auto& [option, is_given] :
       {std::pair{"--alignment", asked.alignment != defaults.alignment},
        std::pair{"--format", asked.format != defaults.format},
        std::pair{"--result-format", asked.results != defaults.results}, std::pair{"--combine", !asked.combine.empty()},
        std::pair{"--reduction", !asked.reduction.empty()},
        std::pair{"--message-copies", asked.message_copies != defaults.message_copies},
        std::pair{"--shared-expert", asked.shared}, std::pair{"--tiled-scales", asked.tiled}})
    if (is_given) given.emplace_back(option);
  // Under a launcher it says which process prints.
  if (asked.backend != defaults.backend && num_processes() == 1) given.emplace_back("--backend");
  return given;
}

void run(const InfoArguments& asked) {
  if (asked.lists_models) {
    const InfoPlan models = list_of_models();
    return asked.json ? print(models.report) : print(models.text);
  }
  Json devices = Json::array({cpu_device()});
  const std::vector<GpuInfo> found = gpus().infos();
  for (const GpuInfo& gpu : found) devices.push_back(gpu_device(gpu));
  const bool plans = asks_for_plan(asked);
  const Table table = backend_table(plans ? kMissingBesidePlan : kMissing);
  Json report = {{"version", kVersion}, {"devices", devices}, {"backends", table.json()}, {"formats", Json::array()}};
  for (const AnyFormat& known : all_formats()) report["formats"].push_back(known.name());
  const std::string machine = device_text(found, plans ? "This machine: " : "") + "\n" + table.text();
  std::string text = fmt::format("ferry {}\n\n{}{}", kVersion, machine, plans ? "" : missing_text());
  if (plans) {  // what was asked, before what is here
    const InfoPlan plan = plan_of(asked);
    report.update(plan.report);
    text = fmt::format("{}\n{}{}", plan.text, machine, missing_text().empty() ? "" : kWhyMissing);
  }
  asked.json ? print(report) : print(text);
}

}  // namespace

void run_info_command(const InfoArguments& asked) {
  const Backend& backend = asked.backend == "auto" ? choose_backend(asked.backend) : backend_named(asked.backend);
  if (backend.ranks == RanksAre::processes && process_number() != 0) return;  // the first says it
  if (asked.lists_models && (asks_for_plan(asked) || !given_of_plan(asked).empty()))
    note("--list-models lists the models and nothing else: the other options have no effect");
  else if (const std::vector<std::string> given = given_of_plan(asked); !asks_for_plan(asked) && !given.empty())
    note(fmt::format("{} {} no effect without a shape: add --model", fmt::join(given, ", "),
                     given.size() == 1 ? "has" : "have"));
  run(asked);
}

}  // namespace ferry::app
