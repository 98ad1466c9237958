// The simulation behind `ferry bench --simulate`: one round of up to 2048 ranks, on paper. It counts what this protocol
// puts on every link, and what three changes of it would put there instead.
#pragma once

#include <array>
#include <functional>

#include "tool/bench/base/bench_case.h"
#include "tool/simulate/simulate_links.h"
#include "tool/simulate/simulate_source.h"

namespace ferry::app {

struct SimulatedCase {
  BenchCase bench;  // shape, format, reduction and routing
  Cluster cluster;
  int node_limit = 0;  // a token's experts lie in at most so many nodes; 0: anywhere
};

// How routing and messages travel. The first is Ferry's protocol; the others do not exist.
//   own_entries  a rank gets only the routing entries for its own experts, with the messages, not the whole table
//   forwarded    what goes to several ranks of another node crosses to it once, to the rank there whose place in its
//                node is the sender's; that rank passes it on, and on the way back sums the node's partials (by_rank)
enum class Way { direct, own_entries, forwarded, forwarded_own_entries };
inline constexpr std::array kWays = {Way::direct, Way::own_entries, Way::forwarded, Way::forwarded_own_entries};
const char* to_string(Way way);
constexpr bool forwards(Way way) { return way == Way::forwarded || way == Way::forwarded_own_entries; }
constexpr bool sends_own_entries(Way way) { return way == Way::own_entries || way == Way::forwarded_own_entries; }

// Bytes of an entry that travels with its message: what the table has of it, and which token and slot it is for.
inline constexpr std::uint64_t kOwnEntryBytes = sizeof(RoutingEntry) + 8;

struct WayLoad {
  PhaseLoad dispatch;
  PhaseLoad combine;
};

struct Simulated {
  SimulatedCase of;
  MemoryUse memory;                          // of each rank
  std::vector<WayLoad> ways;                 // in the order of kWays
  std::array<PairTraffic, kLinkKinds> sent;  // dispatch, all ranks, by link: what the bytes are
  std::array<PairTraffic, kLinkKinds> returned;
  PairTraffic own;  // dispatch of every rank to itself, on no link

  const WayLoad& load(Way way) const { return ways[static_cast<std::size_t>(way)]; }
  TimeBound dispatch_bound(Way way) const { return load(way).dispatch.least_time(forwards(way)); }
  TimeBound combine_bound(Way way) const {
    return load(way).combine.least_time(forwards(way) && of.bench.reduction == Reduction::by_rank);
  }
};

// Adds up one source after another.
class Simulation {
 public:
  explicit Simulation(const SimulatedCase& of);  // throws Error(invalid_argument)

  // As many tokens as `routing` has, at most the shape's.
  void add(int source, const Routing& routing);
  const Simulated& result() const { return result_; }

 private:
  Simulated result_;
  SourceRound round_;
  SourceTraffic traffic_;
};

// All ranks, each with its own routing of max_tokens tokens. `after_each_rank` is called as often as there are ranks.
// Throws Error(invalid_argument).
Simulated simulate(const SimulatedCase& of, const std::function<void()>& after_each_rank);

}  // namespace ferry::app
