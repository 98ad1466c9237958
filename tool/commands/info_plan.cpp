#include "tool/commands/info_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "ferry/ferry.h"
#include "tool/commands/models.h"
#include "tool/commands/options.h"
#include "tool/ranks/ranks.h"
#include "tool/ranks/shape_names.h"
#include "tool/text/table.h"

namespace ferry::app {
namespace {

constexpr int kRanksUnasked = 4;
constexpr int kTokensUnasked = 128;
constexpr std::uint64_t kResultBytes = 2;  // of a column of the experts' output, as bf16
constexpr int kModestTokens = 512;

Shape shape_of(const InfoArguments& asked) {
  if (asked.model.empty() && (!asked.experts || !asked.top_k || !asked.hidden))
    throw Error(ErrorKind::invalid_argument, "a shape needs --model, or --experts, --top-k and --hidden");
  const Model model = asked.model.empty() ? Model{} : *find_model(asked.model);
  const Shape shape{asked.ranks.value_or(kRanksUnasked), asked.experts.value_or(model.experts),
                    asked.top_k.value_or(model.top_k), asked.tokens.value_or(kTokensUnasked),
                    asked.hidden.value_or(model.hidden)};
  require_shape(shape);
  return shape;
}

ExchangeOptions options_of(const InfoArguments& asked) {
  ExchangeOptions options;
  options.format = format_named(asked.format);
  options.reduction = reduction_named(asked.combine);
  options.fused_shared_expert = asked.shared;
  options.tiled_scales = asked.tiled;
  options.expert_alignment = asked.alignment;
  return options;
}

// Of `auto` what the commands would take here; processes where the ranks are too many for that.
const Backend& planned_backend(const std::string& name, int ranks) {
  const Backend& here = name == "auto" ? choose_backend(name, ranks) : backend_named(name);
  return name == "auto" && here.kind == WorldKind::threads && ranks > kMaxRanksPerNode ? backend_named("shmem") : here;
}

// Empty where the commands would run these ranks on this machine.
std::string why_not_here(const Backend& backend, int ranks) {
  if (is_gpu_backend(backend) && ranks > kMaxGpuRanks)
    return fmt::format("backend {}: a world of GPUs has at most {} ranks", backend.name, kMaxGpuRanks);
  if (const std::string why = backend.why_missing(); !why.empty())
    return fmt::format("backend {}: {}", backend.name, why);
  try {
    require_ranks(backend, ranks, 1);
    return {};
  } catch (const Error& refusal) {
    return refusal.what();
  }
}

Table region_table(const MemoryUse& use) {
  Table table({{"region", "exchange memory, each rank", true}, {"bytes", "size"}});
  for (const MemoryUse::Region& region : use.regions)
    if (region.bytes != 0) table.add_row({text_cell(region.name), bytes_cell(region.bytes)});
  table.add_row({text_cell("total"), bytes_cell(use.total)});
  return table;
}

// What ranks with the same number of experts have.
struct RankTensors {
  int first = 0, last = 0;  // ranks
  int experts = 0;
  std::int64_t capacity = 0;   // rows
  std::int64_t even_rows = 0;  // that are filled where each expert gets as many tokens as any other
  std::uint64_t payload = 0, scales = 0, src_info = 0;
  std::uint64_t outputs = 0;  // of dispatch, all
  std::uint64_t results = 0;  // the experts' output, which combine takes
};

RankTensors tensors_of(const Shape& shape, const ExchangeOptions& options, int first, int last) {
  const RowLayout layout = row_layout(shape, options, first);
  RankTensors tensors{first, last, num_local_experts(shape, first), layout.min_row_capacity};
  const std::int64_t choices = std::int64_t{shape.ranks} * shape.max_tokens * shape.top_k;
  tensors.even_rows = choices * tensors.experts / shape.experts + (options.fused_shared_expert ? shape.max_tokens : 0);
  for (const TensorSpec& spec : dispatch_outputs(layout, layout.min_row_capacity)) {
    tensors.outputs += spec.bytes();
    if (spec.field == &DispatchOutput::payload) tensors.payload = spec.bytes();
    if (spec.field == &DispatchOutput::scales) tensors.scales = spec.bytes();
    if (spec.field == &DispatchOutput::src_info) tensors.src_info = spec.bytes();
  }
  tensors.results =
      static_cast<std::uint64_t>(tensors.capacity) * static_cast<std::uint64_t>(shape.hidden) * kResultBytes;
  return tensors;
}

// The ranks with one expert more, where there are such, before the others.
std::vector<RankTensors> tensors_of_ranks(const Shape& shape, const ExchangeOptions& options) {
  std::vector<RankTensors> all;
  const int larger = shape.experts % shape.ranks;
  for (const auto& [first, last] : {std::pair{0, larger - 1}, std::pair{larger, shape.ranks - 1}})
    if (first <= last) all.push_back(tensors_of(shape, options, first, last));
  return all;
}

Table tensor_table(const std::vector<RankTensors>& ranks) {
  Table table({{"ranks", "the caller's, ranks", true},
               {"experts", "experts"},
               {"row_capacity", "row capacity"},
               {"payload_bytes", "payload"},
               {"scale_bytes", "scales"},
               {"src_info_bytes", "src_info"},
               {"output_bytes", "all that dispatch fills"},
               {"result_bytes", "rows for combine"}});
  for (const RankTensors& each : ranks)
    table.add_row({text_cell(each.first == each.last ? std::to_string(each.first)
                                                     : fmt::format("{} to {}", each.first, each.last)),
                   count_cell(each.experts), count_cell(each.capacity), bytes_cell(each.payload),
                   bytes_cell(each.scales), bytes_cell(each.src_info), bytes_cell(each.outputs),
                   bytes_cell(each.results)});
  return table;
}

std::uint64_t total_of(const Shape& shape, const ExchangeOptions& options, bool staged) {
  const RankTensors largest = tensors_of_ranks(shape, options).front();
  return memory_use(shape, options, staged).total + largest.outputs + largest.results;
}

// What a worst case costs, and what takes less.
std::string worst_case_text(const Shape& shape, const ExchangeOptions& options, bool staged, const RankTensors& most) {
  std::string text = wrapped(fmt::format(
      "The caller owns its tensors; rows for combine are the experts' output, as bf16. A row capacity is the worst "
      "case, "
      "where every token names as many experts of the rank as it can, and dispatch refuses less. Even routing fills "
      "about {} of the {} rows ({:.1f} %). On CPUs the system gives memory only to rows that are written; on GPUs all "
      "of it is taken.",
      count_cell(most.even_rows).text, count_cell(most.capacity).text,
      100 * static_cast<double>(most.even_rows) / static_cast<double>(most.capacity)));
  if (shape.max_tokens <= 1) return text;
  Shape fewer = shape;
  fewer.max_tokens = shape.max_tokens > kModestTokens ? kModestTokens : shape.max_tokens / 2;
  return text + wrapped(fmt::format(
                    "Less memory: carry the tokens in several rounds of fewer. With --tokens {} it is {} in all "
                    "(docs/tuning.md, Memory of many ranks).",
                    fewer.max_tokens, human_bytes(total_of(fewer, options, staged))));
}

}  // namespace

bool asks_for_plan(const InfoArguments& asked) {
  return !asked.model.empty() || asked.ranks || asked.experts || asked.top_k || asked.tokens || asked.hidden;
}

Plan plan_of(const InfoArguments& asked) {
  const Shape shape = shape_of(asked);
  const ExchangeOptions options = options_of(asked);
  const Backend& backend = planned_backend(asked.backend, shape.ranks);
  const std::string why_not = why_not_here(backend, shape.ranks);
  // Send buffers, where ranks may be of several hosts.
  const bool staged = backend.kind == WorldKind::shmem || backend.kind == WorldKind::nvshmem;
  const MemoryUse use = memory_use(shape, options, staged);
  const std::vector<RankTensors> ranks = tensors_of_ranks(shape, options);
  const Table regions = region_table(use), tensors = tensor_table(ranks);
  const RankTensors& most = ranks.front();
  const std::uint64_t total = use.total + most.outputs + most.results;
  const std::size_t message = message_bytes(options.format, shape.hidden);
  Plan plan;
  plan.report = {{"shape",
                  {{"ranks", shape.ranks},
                   {"experts", shape.experts},
                   {"top_k", shape.top_k},
                   {"tokens", shape.max_tokens},
                   {"hidden", shape.hidden},
                   {"format", asked.format},
                   {"combine", asked.combine},
                   {"message_bytes", message}}},
                 {"planned_backend", backend.name},
                 {"runs_here", why_not.empty()},
                 {"why_not_here", why_not},
                 {"exchange_memory_bytes", use.total},
                 {"exchange_memory", regions.json()},
                 {"outputs", tensors.json()},
                 {"rows_of_even_routing", most.even_rows},
                 {"total_bytes", total}};
  plan.text = wrapped(fmt::format("{}, {}, {}, backend {}; a message is {}", to_string(shape), asked.format,
                                  asked.combine, backend.name, human_bytes(message)));
  if (!why_not.empty()) plan.text += wrapped(why_not, "Not on this machine: ");
  plan.text += fmt::format("\n{}\n{}\n", regions.text(), tensors.text());
  plan.text += wrapped(fmt::format("In all {} on a rank{}: {} of the exchange, {} that dispatch fills, {} for combine.",
                                   human_bytes(total), ranks.size() > 1 ? " with most experts" : "",
                                   human_bytes(use.total), human_bytes(most.outputs), human_bytes(most.results)));
  plan.text += worst_case_text(shape, options, staged, most);
  return plan;
}

Plan list_of_models() {
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
