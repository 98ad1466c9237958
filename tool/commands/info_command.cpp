// `ferry info`: what this machine has, what each backend would use, and the memory a shape needs on every rank.
#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <optional>
#include <thread>

#include "ferry/ferry.h"
#include "tool/commands/commands.h"
#include "tool/commands/models.h"
#include "tool/commands/options.h"
#include "tool/io/memory.h"
#include "tool/ranks/gpus.h"
#include "tool/ranks/job.h"
#include "tool/text/table.h"

namespace ferry::app {
namespace {

struct InfoCommand : InfoArguments {
  void run() const;
  bool asks_for_shape() const {
    return !model.empty() || ranks != 0 || experts != 0 || top_k != 0 || tokens != 0 || hidden != 0;
  }
  Shape shape() const;
  ExchangeOptions options() const;
};

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

std::string device_text(const std::vector<GpuInfo>& found) {
  std::string text = fmt::format("{}, {} cores, {}, {} of memory ({} available)\n", cpu_name(), cpu_cores(), simd(),
                                 human_bytes(total_memory()), human_bytes(memory_left()));
  for (std::size_t device = 0; device < found.size(); ++device)
    text +=
        fmt::format("GPU {}: {}, {} multiprocessors, {} of memory ({} available), reaches GPUs {}\n", device,
                    found[device].name, found[device].multiprocessors, human_bytes(found[device].memory_bytes),
                    human_bytes(found[device].memory_available_bytes),
                    found[device].reaches.empty() ? "none" : fmt::format("{}", fmt::join(found[device].reaches, ", ")));
  return text;
}

std::string use_of(const Backend& known) {
  if (std::string why = known.why_missing(); !why.empty()) return why;
  if (known.kind == WorldKind::cuda || known.kind == WorldKind::cuda_processes)
    return fmt::format("ranks are {}, 1 to {}, one node; links are loads and stores of peer memory; CUDA {}",
                       known.ranks_are, known.most_ranks(), gpus().versions());
  if (known.ranks == RanksAre::processes)
    return fmt::format("ranks are {}, {} here; links are shared memory within a host and the network between hosts",
                       known.ranks_are, known.most_ranks());
  return fmt::format("ranks are {}, 1 to {}, one node; links are shared memory", known.ranks_are, known.most_ranks());
}

Table backend_table() {
  Table table({{"backend", "backend", true}, {"works", "here", true}, {"use", "what it would use", true}});
  for (const Backend& known : backends()) {
    table.add_row(
        {text_cell(known.name), yes_no_cell(known.why_missing().empty(), "yes", "no"), text_cell(use_of(known))});
  }
  return table;
}

Shape InfoCommand::shape() const {
  Shape wanted{ranks == 0 ? 4 : ranks, experts, top_k, tokens == 0 ? 128 : tokens, hidden};
  if (!model.empty()) {
    const Model* known = find_model(model);
    if (known == nullptr) {
      std::string names;
      for (const Model& each : kModels) names += fmt::format("{}{}", names.empty() ? "" : ", ", each.name);
      throw Error(ErrorKind::invalid_argument, fmt::format("--model {}: must be one of {}", model, names));
    }
    if (wanted.experts == 0) wanted.experts = known->experts;
    if (wanted.top_k == 0) wanted.top_k = known->top_k;
    if (wanted.hidden == 0) wanted.hidden = known->hidden;
  } else if (experts == 0 || top_k == 0 || hidden == 0) {
    throw Error(ErrorKind::invalid_argument, "a shape needs --model, or --experts, --top-k and --hidden");
  }
  require_valid(wanted);
  return wanted;
}

ExchangeOptions InfoCommand::options() const {
  ExchangeOptions wanted;
  wanted.format = format_named(format);
  wanted.reduction = reduction_named(combine);
  wanted.fused_shared_expert = shared;
  wanted.tiled_scales = tiled;
  wanted.expert_alignment = alignment;
  return wanted;
}

Table region_table(const MemoryUse& use) {
  Table table({{"region", "exchange memory, each rank", true}, {"bytes", "size"}});
  for (const MemoryUse::Region& region : use.regions)
    if (region.bytes != 0) table.add_row({text_cell(region.name), bytes_cell(region.bytes)});
  table.add_row({text_cell("total"), bytes_cell(use.total)});
  return table;
}

// Ranks with the same number of experts have the same sizes: one line for each of the two kinds.
Table output_table(const Shape& shape, const ExchangeOptions& options) {
  Table table({{"ranks", "outputs of dispatch, ranks", true},
               {"experts", "experts"},
               {"row_capacity", "row capacity"},
               {"payload_bytes", "payload"},
               {"scale_bytes", "scales"},
               {"src_info_bytes", "src_info"}});
  const int larger = shape.experts % shape.ranks;
  for (const auto& [first, last] : {std::pair{0, larger - 1}, std::pair{larger, shape.ranks - 1}}) {
    if (first > last) continue;
    const RowLayout layout = row_layout(shape, options, first);
    std::uint64_t scales = size_of(layout.scale_dtype);
    for (const std::int64_t extent : layout.scales_shape(layout.min_row_capacity))
      scales *= static_cast<std::uint64_t>(extent);
    const auto rows = static_cast<std::uint64_t>(layout.min_row_capacity);
    table.add_row({text_cell(first == last ? std::to_string(first) : fmt::format("{} to {}", first, last)),
                   count_cell(num_local_experts(shape, first)), count_cell(layout.min_row_capacity),
                   bytes_cell(rows * static_cast<std::uint64_t>(layout.payload_row_bytes)), bytes_cell(scales),
                   bytes_cell(8 * rows)});
  }
  return table;
}

void InfoCommand::run() const {
  if (choose_backend(backend).ranks == RanksAre::processes && process_number() != 0) return;  // the first says it
  Json devices = Json::array({cpu_device()});
  const std::vector<GpuInfo> found = gpus().infos();
  for (const GpuInfo& gpu : found) devices.push_back(gpu_device(gpu));
  const Table table = backend_table();
  Json report = {{"version", kVersion}, {"devices", devices}, {"backends", table.json()}, {"formats", Json::array()}};
  for (const AnyFormat& known : all_formats()) report["formats"].push_back(known.name());
  std::string text = fmt::format("ferry {}\n\n{}\n{}", kVersion, device_text(found), table.text());
  if (asks_for_shape()) {
    const Shape wanted = shape();
    const Backend& chosen = choose_backend(backend, wanted.ranks);
    require_ranks(chosen, wanted.ranks, 1);
    const ExchangeOptions with = options();
    // Send buffers, where ranks are of several hosts.
    const bool may_be_staged = chosen.kind == WorldKind::shmem || chosen.kind == WorldKind::nvshmem;
    const MemoryUse use = memory_use(wanted, with, may_be_staged);
    const Table outputs = output_table(wanted, with);
    report["shape"] = {{"ranks", wanted.ranks},   {"experts", wanted.experts},
                       {"top_k", wanted.top_k},   {"tokens", wanted.max_tokens},
                       {"hidden", wanted.hidden}, {"format", format},
                       {"combine", combine},      {"message_bytes", message_bytes(with.format, wanted.hidden)}};
    report["exchange_memory_bytes"] = use.total;
    report["exchange_memory"] = region_table(use).json();
    report["outputs"] = outputs.json();
    text += fmt::format(
        "\n{}, {}, {}; a message is {}\n\n{}\n{}\nThe caller owns the outputs. A row capacity is the worst case; on "
        "the "
        "CPU the system gives memory only to rows that are written.\n",
        to_string(wanted), format, combine, human_bytes(message_bytes(with.format, wanted.hidden)),
        region_table(use).text(), outputs.text());
  }
  json ? print(report) : print(text);
}

}  // namespace

void run_info_command(const InfoArguments& asked) { InfoCommand{asked}.run(); }

}  // namespace ferry::app
