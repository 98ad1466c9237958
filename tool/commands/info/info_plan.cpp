#include "tool/commands/info/info_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ferry/ferry.h"
#include "tool/commands/info/info_memory.h"
#include "tool/commands/options/models.h"
#include "tool/commands/options/options.h"
#include "tool/io/memory.h"
#include "tool/ranks/nvshmem/nvshmem_job.h"
#include "tool/ranks/ranks.h"
#include "tool/ranks/ranks_unasked.h"
#include "tool/ranks/shape_names.h"
#include "tool/text/table.h"

namespace ferry::app {
namespace {

constexpr int kRanksUnasked = 4;
constexpr int kTokensUnasked = 128;
constexpr int kModestTokens = 512;
constexpr std::uint64_t kMuch = std::uint64_t{1} << 30;  // of a rank: more than this may be too much

void require_whole_shape(const InfoArguments& asked) {
  std::vector<std::string> missing;
  if (!asked.experts) missing.push_back("--experts");
  if (!asked.top_k) missing.push_back("--top-k");
  if (!asked.hidden) missing.push_back("--hidden");
  if (asked.model.empty() && !missing.empty())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("a shape needs --model, or --experts, --top-k and --hidden; missing {} {}",
                            missing.size() == 1 ? "is" : "are", fmt::join(missing, ", ")));
}

Shape shape_of(const InfoArguments& asked) {
  require_whole_shape(asked);
  const Model model = asked.model.empty() ? Model{} : *find_model(asked.model);
  const Shape shape{asked.ranks.value_or(ranks_unasked(asked.backend, kRanksUnasked)),
                    asked.experts.value_or(model.experts), asked.top_k.value_or(model.top_k),
                    asked.tokens.value_or(kTokensUnasked), asked.hidden.value_or(model.hidden)};
  ShapeNames names;
  if (!asked.model.empty() && !asked.experts) names.experts_are = "of --model " + asked.model;
  if (!asked.model.empty() && !asked.top_k) names.top_k = "the --top-k of --model " + asked.model + ",";
  require_shape(shape, names);
  return shape;
}

// The model whose shape this is, and what the caller took in place of its numbers.
std::string model_text(const InfoArguments& asked) {
  if (asked.model.empty()) return {};
  std::string text = asked.model;
  const char* with = " with ";
  for (const auto& [option, value] :
       {std::pair{"--experts", asked.experts}, {"--top-k", asked.top_k}, {"--hidden", asked.hidden}}) {
    if (!value) continue;
    text += fmt::format("{}{} {}", with, option, *value);
    with = ", ";
  }
  return text + ": ";
}

// The rules are those of the library, which would name its own fields.
void require_layout(const InfoArguments& asked) {
  const AnyFormat format = format_named(asked.format);
  const bool has_tiles =
      format.scale_layout() == ScaleLayout::tiled || (format.scale_bytes() == 1 && format.block() == 32);
  if (asked.tiled && !has_tiles)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("--tiled-scales: --format {} has no scales that can be tiled; mxfp8 has", asked.format));
}

ExchangeOptions options_of(const InfoArguments& asked) {
  require_layout(asked);
  ExchangeOptions options;
  options.format = format_named(asked.format);
  options.result_format = result_format_named(asked.results);
  options.reduction = reductions_named(asked.reduction, asked.combine).of_exchange;
  options.message_copies = asked.message_copies;
  options.fused_shared_expert = asked.shared;
  options.tiled_scales = asked.tiled;
  options.expert_alignment = asked.alignment;
  return options;
}

// For `auto` returns what the commands would take here, or processes where the ranks are too many for that.
const Backend& planned_backend(std::string_view name, int ranks) {
  const Backend& here = name == "auto" ? choose_backend(name, ranks) : backend_named(name);
  return name == "auto" && here.kind == WorldKind::threads && ranks > kMaxRanksPerNode ? backend_named("shmem") : here;
}

// A limit of the library; empty where some machine would run this.
std::string why_nowhere(const Backend& backend, int ranks) {
  if (is_gpu_backend(backend) && backend.kind != WorldKind::nvshmem && ranks > kMaxGpuRanks)
    return fmt::format("backend {}: a world of GPUs of one host has at most {} ranks; --backend nvshmem has up to {}",
                       backend.name, kMaxGpuRanks, kMaxRanks);
  const bool is_one_node = backend.kind == WorldKind::threads || backend.kind == WorldKind::processes;
  if (is_one_node && ranks > kMaxRanksPerNode)
    return fmt::format("backend {}: a world of {} has at most {} ranks; --backend shmem has up to {}", backend.name,
                       to_string(backend.kind), kMaxRanksPerNode, kMaxRanks);
  return {};
}

// What a job over OpenSHMEM has in symmetric memory beside exchanges: the buffers of its own and of two worlds
// (ShmemBootstrap::Map), which grow with the ranks up to 19 MiB each.
std::uint64_t own_bytes_of_shmem(int ranks) {
  constexpr std::uint64_t kChunk = std::uint64_t{256} << 10, kMost = std::uint64_t{20} << 20;
  return 3 * std::min((2 * static_cast<std::uint64_t>(ranks) + 3) * kChunk, kMost);
}

// What NVSHMEM_SYMMETRIC_SIZE or SHMEM_SYMMETRIC_HEAP_SIZE must say for an exchange of so many bytes.
std::string symmetric_size(const Backend& backend, int ranks, std::uint64_t exchange) {
  constexpr std::uint64_t kMegabyte = std::uint64_t{1} << 20;
  const std::uint64_t own = backend.kind == WorldKind::nvshmem ? kOwnBytesOfNvshmem : own_bytes_of_shmem(ranks);
  return fmt::format("{}M", (exchange + own + kMegabyte - 1) / kMegabyte);
}

// Empty where the commands would run this on this machine.
std::string why_not_here(const Backend& backend, int ranks) {
  if (std::string why = why_nowhere(backend, ranks); !why.empty()) return why;
  if (const std::string why = backend.why_missing(); !why.empty())
    return fmt::format("backend {}: {}", backend.name, why);
  try {
    require_ranks(backend, ranks, 1);
    return {};
  } catch (const Error& refusal) {
    return refusal.what();
  }
}

std::string sum_text(const PlannedMemory& memory) {
  const RankTensors& most = memory.ranks.front();
  return wrapped(fmt::format("In all {} on a rank{}: {} of the exchange, {} that dispatch fills, {} for combine{}.",
                             human_bytes(memory.most()), memory.ranks.size() > 1 ? " with most experts" : "",
                             human_bytes(memory.exchange.total), human_bytes(most.outputs), human_bytes(most.results),
                             memory.gpu_state == 0 ? ""
                                                   : fmt::format(", about {} of GPU state (cuda_state_bytes)",
                                                                 human_bytes(memory.gpu_state))));
}

// Where all ranks share one memory, or what NVSHMEM must be told.
std::string place_text(const Backend& backend, const PlannedMemory& memory, int ranks) {
  if (backend.kind == WorldKind::threads && ranks > 1)
    return wrapped(fmt::format("All {} ranks of one process together {}; this machine has {} of memory available.",
                               ranks, human_bytes(memory.of_all_ranks()), human_bytes(memory_left())));
  if (backend.kind == WorldKind::nvshmem)
    return wrapped(fmt::format(
        "For one exchange NVSHMEM_SYMMETRIC_SIZE must be {} or more, with what NVSHMEM keeps for itself; in a program "
        "NvshmemOptions::heap_bytes must be {} or more.",
        symmetric_size(backend, ranks, memory.exchange.total), memory.exchange.total));
  if (backend.kind == WorldKind::shmem)
    return wrapped(fmt::format(
        "For one exchange SHMEM_SYMMETRIC_HEAP_SIZE must be {} or more in all processes, with what a job keeps for "
        "itself; in a program ShmemOptions::heap_bytes may say it in its place.",
        symmetric_size(backend, ranks, memory.exchange.total)));
  return {};
}

// What is taken of the worst case, and what of even routing.
std::string taken_text(const Backend& backend, const PlannedMemory& memory) {
  const RankTensors& most = memory.ranks.front();
  const double filled = static_cast<double>(most.even_rows) / static_cast<double>(most.capacity);
  const auto tensors = static_cast<std::uint64_t>(filled * static_cast<double>(most.outputs + most.results));
  const std::string even = human_bytes(memory.exchange.total + tensors + memory.gpu_state);
  std::string text = fmt::format("Even routing fills about {} of the {} rows ({:.1f} %)",
                                 count_cell(most.even_rows).text, count_cell(most.capacity).text, 100 * filled);
  if (!is_gpu_backend(backend))
    return text + fmt::format("; the system gives memory only to rows that are written: about {} in all.", even);
  return text + fmt::format(
                    "; on GPUs all of them are taken, unless the host waits for the counts and then allocates "
                    "what came: about {} in all (docs/rows.md, Exact sizes), or rows may overflow (docs/outputs.md).",
                    even);
}

// What a worst case costs, and what takes less.
std::string worst_case_text(const Shape& shape, const ExchangeOptions& options, const Backend& backend,
                            const PlannedMemory& memory) {
  std::string text = wrapped(
      "The caller owns its tensors; rows for combine are the experts' output, as bf16. A row capacity is the worst "
      "case, where every token names as many experts of the rank as it can. " +
      taken_text(backend, memory));
  if (memory.most() < kMuch) return text;
  const RankTensors& most = memory.ranks.front();
  std::string less = fmt::format("all layers of a model may use one exchange, and the same {} of tensors in turn",
                                 human_bytes(most.outputs + most.results));
  if (shape.max_tokens > kModestTokens) {
    Shape fewer = shape;
    fewer.max_tokens = kModestTokens;
    less += fmt::format("; {} rounds of --tokens {} take {} in place of one of {}",
                        (shape.max_tokens + kModestTokens - 1) / kModestTokens, kModestTokens,
                        human_bytes(planned_memory(fewer, options, backend).most()), human_bytes(memory.most()));
  }
  return text + wrapped("Less memory: " + less + " (docs/memory.md).");
}

Json report_of(const InfoArguments& asked, const Shape& shape, const Backend& backend, const PlannedMemory& memory) {
  const std::string why_not = why_not_here(backend, shape.ranks);
  const Reductions reductions = reductions_named(asked.reduction, asked.combine);
  Json report = {{"shape",
                  {{"ranks", shape.ranks},
                   {"experts", shape.experts},
                   {"top_k", shape.top_k},
                   {"tokens", shape.max_tokens},
                   {"hidden", shape.hidden},
                   {"format", asked.format},
                   {"result_format", asked.results},
                   {"combine", to_string(reductions.of_combine)},
                   {"reduction", to_string(reductions.of_exchange)},
                   {"message_copies", asked.message_copies},
                   {"message_bytes", message_bytes(format_named(asked.format), shape.hidden)}}},
                 {"model", asked.model},
                 {"planned_backend", backend.name},
                 {"runs_here", why_not.empty()},
                 {"why_not_here", why_not},
                 {"why_nowhere", why_nowhere(backend, shape.ranks)},
                 {"exchange_memory_bytes", memory.exchange.total},
                 {"exchange_memory", region_table(memory.exchange, asked.message_copies).json()},
                 {"outputs", tensor_table(memory.ranks).json()},
                 {"rows_of_even_routing", memory.ranks.front().even_rows},
                 {"gpu_state_bytes", memory.gpu_state},
                 {"total_bytes", memory.most()},
                 {"all_ranks_bytes", memory.of_all_ranks()}};
  if (backend.kind == WorldKind::nvshmem)
    report["nvshmem_symmetric_size"] = symmetric_size(backend, shape.ranks, memory.exchange.total);
  if (backend.kind == WorldKind::shmem)
    report["shmem_symmetric_heap_size"] = symmetric_size(backend, shape.ranks, memory.exchange.total);
  return report;
}

}  // namespace

bool asks_for_plan(const InfoArguments& asked) {
  return !asked.model.empty() || asked.ranks || asked.experts || asked.top_k || asked.tokens || asked.hidden;
}

InfoPlan plan_of(const InfoArguments& asked) {
  const Shape shape = shape_of(asked);
  const ExchangeOptions options = options_of(asked);
  const Backend& backend = planned_backend(asked.backend, shape.ranks);
  const PlannedMemory memory = planned_memory(shape, options, backend);
  InfoPlan plan;
  plan.report = report_of(asked, shape, backend, memory);
  plan.text = wrapped(fmt::format("{}{}, {}, {}, results in {}, backend {}; a message is {}", model_text(asked),
                                  to_string(shape), asked.format, to_string(options.reduction), asked.results,
                                  backend.name, human_bytes(message_bytes(options.format, shape.hidden))));
  if (const std::string why = why_nowhere(backend, shape.ranks); !why.empty())
    plan.text += wrapped(why + ". What follows is a plan only.", "On no machine: ");
  else if (const std::string why_here = why_not_here(backend, shape.ranks); !why_here.empty())
    plan.text += wrapped(why_here, "Not on this machine: ");
  plan.text += fmt::format("\n{}\n{}\n", region_table(memory.exchange, asked.message_copies).text(),
                           tensor_table(memory.ranks).text());
  plan.text +=
      sum_text(memory) + place_text(backend, memory, shape.ranks) + worst_case_text(shape, options, backend, memory);
  return plan;
}

InfoPlan list_of_models() {
  Table table({{"model", "model", true},
               {"hidden", "hidden"},
               {"experts", "experts"},
               {"top_k", "top-k"},
               {"inter", "columns of an expert"}});
  for (const Model& model : kModels)
    table.add_row({text_cell(std::string(model.name)), count_cell(model.hidden), count_cell(model.experts),
                   count_cell(model.top_k), model.inter == 0 ? Cell{nullptr, "not said"} : count_cell(model.inter)});
  return {table.text(), {{"models", table.json()}}};
}

}  // namespace ferry::app
