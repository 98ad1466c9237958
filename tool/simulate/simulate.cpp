// Adds up what every source's round puts on the links, the protocol's way and the others.
#include "tool/simulate/simulate.h"

#include <algorithm>

namespace ferry::app {
namespace {

void add_to(PairTraffic& sum, const PairTraffic& more) {
  sum.messages += more.messages;
  sum.message_bytes += more.message_bytes;
  sum.table_bytes += more.table_bytes;
  sum.count_bytes += more.count_bytes;
  sum.operations += more.operations;
  sum.signals += more.signals;
}

// Where what goes from `source` to `node` arrives first: the rank at the sender's place, or the node's last.
int gateway_of(const Cluster& cluster, int source, int node) {
  const int place = source - cluster.first_of(cluster.node_of(source));
  return std::min(cluster.first_of(node) + place, cluster.end_of(node) - 1);
}

// The routing of `source` on its way to `rank`: its part that is for that rank alone, and what every rank gets alike.
struct RoutingBytes {
  std::uint64_t alone;
  std::uint64_t shared;
};
RoutingBytes routing_to(const SourceRound& round, const PairTraffic& direct, int rank, bool own_entries) {
  if (!own_entries) return {direct.count_bytes, direct.table_bytes};
  return {direct.count_bytes + round.entries(rank) * kOwnEntryBytes, sizeof(RoutingHeader)};
}

constexpr std::uint64_t kSignal = sizeof(SignalWord);
constexpr std::uint64_t kRoutingOperations = 4;  // table, header, counts and their signal

class SourceLoads {
 public:
  SourceLoads(const SimulatedCase& of, const SourceRound& round, const SourceTraffic& traffic, int source)
      : cluster_(of.cluster), round_(round), traffic_(traffic), source_(source) {}

  void add_direct(WayLoad& load, bool own_entries) const {
    for (int rank = 0; rank < cluster_.ranks; ++rank) add_pair(load, rank, own_entries);
  }

  void add_forwarded(WayLoad& load, bool own_entries) const {
    const int home = cluster_.node_of(source_);
    for (int rank = cluster_.first_of(home); rank < cluster_.end_of(home); ++rank) add_pair(load, rank, own_entries);
    for (int node = 0; node < cluster_.nodes(); ++node)
      if (node != home) add_routing(load, node, own_entries);
    for (int token = 0; token < round_.num_tokens(); ++token) {
      const NamedRanks named = round_.named(token);
      for (int first = 0; first < named.count;) {
        const int node = cluster_.node_of(named.rank[first]);
        int end = first;
        while (end < named.count && cluster_.node_of(named.rank[end]) == node) ++end;
        if (node != home) add_token(load, node, named.rank + first, end - first);
        first = end;
      }
    }
  }

 private:
  static const PairTraffic& to(const std::vector<PairTraffic>& traffic, int rank) {
    return traffic[static_cast<std::size_t>(rank)];
  }

  void add_returned(WayLoad& load, int rank) const {
    const PairTraffic& back = to(traffic_.returned, rank);
    load.combine.add(rank, source_, back.bytes(), back.operations);
  }

  // All that goes straight from the source to `rank` and back.
  void add_pair(WayLoad& load, int rank, bool own_entries) const {
    const PairTraffic& there = to(traffic_.dispatched, rank);
    const RoutingBytes routing = routing_to(round_, there, rank, own_entries);
    const std::uint64_t rest = there.bytes() - there.table_bytes - there.count_bytes;
    load.dispatch.add(source_, rank, rest + routing.alone + routing.shared, there.operations);
    add_returned(load, rank);
    const PairTraffic& closed = to(traffic_.closed, rank);
    load.combine.add(source_, rank, closed.bytes(), closed.operations);
  }

  // Routing crosses once for all ranks of a node, and so does the word that the round was read.
  void add_routing(WayLoad& load, int node, bool own_entries) const {
    const int gateway = gateway_of(cluster_, source_, node);
    std::uint64_t crossing = kSignal;
    for (int rank = cluster_.first_of(node); rank < cluster_.end_of(node); ++rank) {
      const RoutingBytes routing = routing_to(round_, to(traffic_.dispatched, rank), rank, own_entries);
      load.dispatch.add(gateway, rank, routing.alone + routing.shared + kSignal, kRoutingOperations);
      crossing += routing.alone + (rank == gateway ? routing.shared : 0);
      load.combine.add(gateway, rank, kSignal, 1);
      if (round_.plan().exact) add_returned(load, rank);  // rows that are not summed have nothing to share
    }
    load.dispatch.add(source_, gateway, crossing, kRoutingOperations);
    load.combine.add(source_, gateway, kSignal, 1);
  }

  void add_token(WayLoad& load, int node, const int* ranks, int count) const {
    const HeapMap& map = round_.plan().map;
    const int gateway = gateway_of(cluster_, source_, node);
    load.dispatch.add(source_, gateway, map.message_bytes() + kSignal, 1);
    for (int i = 0; i < count; ++i) load.dispatch.add(gateway, ranks[i], map.message_bytes() + kSignal, 1);
    if (round_.plan().exact) return;
    for (int i = 0; i < count; ++i) load.combine.add(ranks[i], gateway, map.result_bytes() + kSignal, 1);
    load.combine.add(gateway, source_, map.result_bytes() + kSignal, 1);
  }

  const Cluster& cluster_;
  const SourceRound& round_;
  const SourceTraffic& traffic_;
  int source_;
};

}  // namespace

const char* to_string(Way way) {
  constexpr std::array kNames = {"direct", "own_entries", "forwarded", "forwarded_own_entries"};
  return kNames[static_cast<std::size_t>(way)];
}

Simulation::Simulation(const SimulatedCase& of)
    : result_{of,
              memory_use(of.bench.shape, exchange_options(of.bench), of.cluster.nodes() > 1),
              std::vector(kWays.size(), WayLoad{PhaseLoad(of.cluster), PhaseLoad(of.cluster)}),
              {},
              {},
              {}},
      round_(of.bench.shape, exchange_options(of.bench), of.bench.reduction) {}

void Simulation::add(int source, const Routing& routing) {
  const Cluster& cluster = result_.of.cluster;
  round_.route(source, routing);
  round_.count(traffic_);
  for (int rank = 0; rank < cluster.ranks; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    const auto kind = static_cast<std::size_t>(cluster.link(source, rank));
    add_to(rank == source ? result_.own : result_.sent[kind], traffic_.dispatched[at]);
    if (rank != source) add_to(result_.returned[kind], traffic_.returned[at]);
  }
  const SourceLoads loads(result_.of, round_, traffic_, source);
  for (const Way way : kWays) {
    WayLoad& load = result_.ways[static_cast<std::size_t>(way)];
    forwards(way) ? loads.add_forwarded(load, sends_own_entries(way)) : loads.add_direct(load, sends_own_entries(way));
  }
}

Simulated simulate(const SimulatedCase& of, const std::function<void()>& after_each_rank) {
  Simulation simulation(of);
  for (int source = 0; source < of.cluster.ranks; ++source) {
    simulation.add(source, make_routing(of.bench, source, 0, {of.node_limit, of.cluster.ranks_per_node}));
    after_each_rank();
  }
  return simulation.result();
}

}  // namespace ferry::app
