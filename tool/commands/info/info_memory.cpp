#include "tool/commands/info/info_memory.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "ferry/detail/layout/handle_header.h"

namespace ferry::app {
namespace {

constexpr std::uint64_t kResultBytes = 2;  // of a column of the experts' output, as bf16

constexpr std::array kRegionMeanings = {
    std::pair{"routing tables", "the experts and weights of each rank's tokens"},
    std::pair{"expert counts", "how many tokens each rank has for each expert here"},
    std::pair{"sent counts", "the same of this rank, on their way"},
    std::pair{"routing headers", "how many tokens each rank has"},
    std::pair{"arrived words", "signals: a message is there"},
    std::pair{"routed words", "signals: a rank's routing is there"},
    std::pair{"dispatching words", "signals: a rank is in its dispatch"},
    std::pair{"summed words", "signals: a rank has its sums"},
    std::pair{"combining words", "signals: a rank is in its combine"},
    std::pair{"abort words", "why a rank ended the exchange"},
    std::pair{"result slots", "partial sums, or rows, that come home"},
    std::pair{"result words", "signals: a result is there"},
    std::pair{"sent messages", "messages on their way to ranks that are reached by puts"},
    std::pair{"token lists", "which tokens each rank sends here, for rows by_source"},
    std::pair{"sent token lists", "the same of this rank, on their way"},
    std::pair{"given counts", "how many tokens ranks say that they have for experts here"},
    std::pair{"sent given counts", "the same of this rank, on their way"},
    std::pair{"input scales", "the input scale of each rank's tokens"},
    std::pair{"late weights", "router weights that come after the routing"},
    std::pair{"weighed words", "signals: a rank's late weights are there"},
    std::pair{"returned weights", "weights that come home with results"},
    std::pair{"returned words", "signals: such weights are there"},
    std::pair{"sent weights", "such weights on their way to ranks that are reached by puts"},
    std::pair{"sent results", "results on their way to ranks that are reached by puts"},
};

std::string meaning_of(std::string_view region, int message_copies) {
  if (region == "messages")
    return fmt::format("tokens that came, with their routing, of {} rounds", message_copies == 2 ? "two" : "four");
  for (const auto& [name, meaning] : kRegionMeanings)
    if (name == region) return meaning;
  return {};
}

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

// What combine must know of a dispatch: a row for each (rank, token, k), and once more for combines by other rows; and
// a byte for each (rank, token). The rest of a GPU's state does not grow with the tokens of all ranks.
std::uint64_t gpu_state_of(const Shape& shape) {
  const std::uint64_t tokens = static_cast<std::uint64_t>(shape.ranks) * static_cast<std::uint64_t>(shape.max_tokens);
  return tokens * (static_cast<std::uint64_t>(shape.top_k) * 2 * sizeof(HandleRow) + 1);
}

}  // namespace

PlannedMemory planned_memory(const Shape& shape, const ExchangeOptions& options, const Backend& backend) {
  // Of a backend of several hosts some ranks are remote, so there are send buffers.
  return {memory_use(shape, options, capabilities_of(backend).remote_ranks), tensors_of_ranks(shape, options),
          is_gpu_backend(backend) ? gpu_state_of(shape) : 0};
}

std::uint64_t PlannedMemory::of_all_ranks() const {
  std::uint64_t sum = 0;
  for (const RankTensors& each : ranks) sum += static_cast<std::uint64_t>(each.last - each.first + 1) * of_rank(each);
  return sum;
}

Table region_table(const MemoryUse& use, int message_copies) {
  Table table({{"region", "exchange memory, each rank", true}, {"bytes", "size"}, {"what", "what it holds", true}});
  for (const MemoryUse::Region& region : use.regions)
    if (region.bytes != 0)
      table.add_row(
          {text_cell(region.name), bytes_cell(region.bytes), text_cell(meaning_of(region.name, message_copies))});
  table.add_row({text_cell("total"), bytes_cell(use.total), text_cell("")});
  return table;
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

}  // namespace ferry::app
