#include "exchange/agreement/contract.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "exchange/sizes/sizes.h"
#include "ferry/detail/layout/result_layout.h"

namespace ferry {
namespace {

constexpr const char* kNames[] = {"shape.ranks",
                                  "shape.experts",
                                  "shape.top_k",
                                  "shape.max_tokens",
                                  "shape.hidden",
                                  "reduction",
                                  "tiled_scales",
                                  "expert_alignment",
                                  "skip_a2a",
                                  "fused_shared_expert",
                                  "allreduce_world_size",
                                  "concurrent",
                                  "format.block",
                                  "format.scale_bytes",
                                  "format.payload_bytes",
                                  "the bytes of a result",
                                  "late_weights",
                                  "returns_weights",
                                  "dynamic_scales",
                                  "message_copies",
                                  "World::has_remote_ranks",
                                  "the number of the exchange whose memory it shares (0: none)",
                                  "row_orders",
                                  "the number of more_formats"};
constexpr std::size_t kFields = std::size(kNames);
constexpr std::size_t kReduction = 5;
constexpr std::size_t kMemoryOfField = kFields - 3;
constexpr std::size_t kRowOrdersField = kFields - 2;

struct Contract {
  std::array<std::int64_t, kFields> value;
  std::array<char, 64> format, result_format;
  std::int64_t newest;            // number of an exchange; not compared
  std::int64_t refused_as;        // ErrorKind
  std::array<char, 504> refusal;  // why this rank refuses its options; empty: it does not
};

template <std::size_t kBytes>
void copy_text(const char* text, std::array<char, kBytes>& to) {
  std::strncpy(to.data(), text, kBytes - 1);
}

// Slots have other sizes where some ranks are reached by puts alone, so all ranks must see the world alike.
Contract contract_of(const World& world, const Shape& shape, const ExchangeOptions& o) {
  Contract contract{};
  contract.value = {shape.ranks,
                    shape.experts,
                    shape.top_k,
                    shape.max_tokens,
                    shape.hidden,
                    static_cast<std::int64_t>(o.reduction),
                    o.tiled_scales,
                    o.expert_alignment == 0 ? o.format.alignment() : o.expert_alignment,
                    o.skip_a2a,
                    o.fused_shared_expert,
                    o.allreduce_world_size,
                    o.concurrent,
                    o.format.block(),
                    o.format.scale_bytes(),
                    static_cast<std::int64_t>(o.format.payload_bytes(shape.hidden)),
                    static_cast<std::int64_t>(result_layout(o.result_format, shape.hidden).bytes),
                    o.late_weights,
                    o.returns_weights,
                    o.dynamic_scales,
                    o.message_copies,
                    world.has_remote_ranks() && !o.skip_a2a,
                    0,  // set by who knows it
                    o.row_orders.bits(),
                    static_cast<std::int64_t>(o.more_formats.size())};
  copy_text(o.format.name(), contract.format);
  copy_text(o.result_format.name(), contract.result_format);
  return contract;
}

std::string text_of(std::size_t field, std::int64_t value) {
  if (field == kRowOrdersField) return to_string(RowOrders::of_bits(static_cast<std::uint8_t>(value)));
  return field == kReduction ? to_string(static_cast<Reduction>(value)) : std::to_string(value);
}

std::vector<Contract> contracts_of_all(World& world, const Contract& mine, const RankMask& mask,
                                       std::chrono::milliseconds deadline) {
  std::vector<Contract> all(static_cast<std::size_t>(world.size()));
  world.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), mask, deadline);
  return all;
}

void require_no_refusal(const std::vector<Contract>& all, const RankMask& mask, int my_rank) {
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (!is_masked(mask, static_cast<int>(rank)) && all[rank].refusal[0] != '\0')
      throw Error(static_cast<ErrorKind>(all[rank].refused_as),
                  fmt::format("rank {}: rank {} does not make this exchange, and says: {}", my_rank, rank,
                              all[rank].refusal.data()));
}

// Numbers of exchanges: as at require_same_contract.
struct Numbers {
  std::uint32_t newest;
  std::uint32_t memory_of;
};

// `prefix`: of the names of fields that differ. Returns the contracts of all.
std::vector<Contract> require_same(World& world, const Shape& shape, const ExchangeOptions& options,
                                   const std::string& prefix, const Numbers& numbers) {
  Contract mine = contract_of(world, shape, options);
  mine.newest = numbers.newest;
  mine.value[kMemoryOfField] = numbers.memory_of;
  std::vector<Contract> all = contracts_of_all(world, mine, options.mask, set_up_deadline(options));
  require_no_refusal(all, options.mask, world.rank());
  int first = 0;
  while (is_masked(options.mask, first)) ++first;
  const Contract& reference = all[static_cast<std::size_t>(first)];
  for (int rank = first + 1; rank < world.size(); ++rank) {
    if (is_masked(options.mask, rank)) continue;
    const Contract& other = all[static_cast<std::size_t>(rank)];
    for (const auto& [name, field] :
         {std::pair{"format", &Contract::format}, std::pair{"result_format", &Contract::result_format}})
      if (std::strcmp((other.*field).data(), (reference.*field).data()) != 0)
        throw Error(
            ErrorKind::invalid_argument,
            fmt::format("rank {}: the ranks of an exchange differ: {}{} is {} on rank {} and {} on rank {}",
                        world.rank(), prefix, name, (reference.*field).data(), first, (other.*field).data(), rank));
    for (std::size_t field = 0; field < kFields; ++field)
      if (other.value[field] != reference.value[field])
        throw Error(ErrorKind::invalid_argument,
                    fmt::format("rank {}: the ranks of an exchange differ: {}{} is {} on rank {} and {} on rank {}",
                                world.rank(), prefix, kNames[field], text_of(field, reference.value[field]), first,
                                text_of(field, other.value[field]), rank));
  }
  return all;
}

}  // namespace

// The first comparison covers the number of formats, so all ranks make as many.
std::uint32_t require_same_contract(World& world, const Shape& shape, const ExchangeOptions& options,
                                    std::uint32_t newest, std::uint32_t memory_of) {
  const Numbers numbers{newest, memory_of};
  for (const Contract& each : require_same(world, shape, options, "", numbers))  // 0 of ranks that are masked
    newest = std::max(newest, static_cast<std::uint32_t>(each.newest));
  for (int format = 1; format < num_formats(options); ++format)
    require_same(world, shape, options_in(options, format), fmt::format("more_formats[{}]: ", format - 1), numbers);
  return newest + 1;
}

void tell_refusal(World& world, const ExchangeOptions& options, const Error& refusal) noexcept {
  try {
    const bool is_possible = options.mask.size() <= static_cast<std::size_t>(world.size());
    const RankMask mask = is_possible ? options.mask : RankMask{};
    if (is_masked(mask, world.rank())) return;
    Contract mine{};
    mine.refused_as = static_cast<std::int64_t>(refusal.kind());
    copy_text(refusal.what(), mine.refusal);
    contracts_of_all(world, mine, mask, std::min(set_up_deadline(options), kDefaultDeadline));
  } catch (...) {
    // Then the others find it out at their deadlines.
  }
}

}  // namespace ferry
