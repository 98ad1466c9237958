// One rank without its peers: for the phases, and the questions about a routing table, that ask nobody.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/steps/route.h"

namespace ferry::test {

// The memory of one rank: enough for the phases that ask no peer.
struct LocalCalls : SerialFabricDefaults {
  std::vector<std::uint64_t> words;
  static int rank() { return 0; }
  static int size() { return 1; }
  std::byte* local(std::size_t offset) const {
    return reinterpret_cast<std::byte*>(const_cast<std::uint64_t*>(words.data())) + offset;
  }
  std::byte* peer_pointer(int, std::size_t offset) const { return local(offset); }
  static void put(const SerialGroup&, int, std::size_t, const void*, std::size_t) {}
  static void put_then_signal(const SerialGroup&, int, const SignalledPut&) {}
  static void signal_after_puts(const SerialGroup&, int, std::size_t, Epoch) {}
  static void signal_without_order(const SerialGroup&, int, std::size_t, Epoch) {}
  static bool wait_at_least(const SerialGroup&, std::size_t, Epoch, const WaitSite&) { return true; }
};
using LocalMemory = OneByOne<LocalCalls>;
static_assert(SerialFabric<LocalMemory>);

// A rank's plan and memory, without its peers.
struct Rank {
  Rank(const Shape& shape, int rank, bool exact = false, bool has_remote_ranks = false)
      : masked(static_cast<std::size_t>(shape.ranks)) {
    const HeapShape heap{shape, max_local_experts(shape), 16, exact, has_remote_ranks};
    plan.set_shape(shape);
    plan.map = HeapMap(heap);
    plan.code = {id_bits(shape.experts)};
    plan.rank = rank;
    plan.exact = exact;
    plan.masked = masked.data();
    memory.words.resize(plan.map.total() / 8 + 1);
  }

  // Ranks these ids as this rank's own; returns its table.
  const RoutingEntry* route_ids(const std::vector<std::int64_t>& ids, std::uint64_t* dropped = nullptr) {
    DispatchArgs args;
    args.num_tokens = static_cast<int>(ids.size()) / plan.shape.top_k;
    args.ids = {ids.data(), true};
    args.weights.top_k = plan.shape.top_k;
    const std::uint64_t count = cpu::route_entries(plan, memory, args, kFirstEpoch);
    if (dropped != nullptr) *dropped = count;
    return table_of(plan, memory, kFirstEpoch, plan.rank);
  }

  std::vector<std::uint8_t> masked;
  Plan plan;
  LocalMemory memory;
};

}  // namespace ferry::test
