// Routing for the benchmarks, and the bytes that a routing makes an exchange move.
#pragma once

#include <cstdint>
#include <vector>

#include "tool/bench/base/bench_case.h"

namespace ferry::app {

// The top-k of one rank's tokens: distinct ids, weights that sum to 1.
struct Routing {
  std::vector<std::int32_t> ids;  // [n, K]
  std::vector<float> weights;     // [n, K]
};

// A token's experts lie in at most `nodes` groups of consecutive ranks; 0: anywhere.
struct NodeLimit {
  int nodes = 0;
  int ranks_per_node = 0;
};

// `kind` zipf: expert popularity falls as 1 / position^exponent, positions shuffled over the experts alike on all
// ranks. With a limit the nodes of a token are those of its first draws. The same arguments give the same routing on
// every machine. Throws Error(invalid_argument) where some nodes within the limit have fewer than top_k experts.
Routing make_routing(RoutingKind kind, double exponent, const Shape& shape, std::uint64_t seed, NodeLimit limit = {});
inline Routing make_routing(const BenchCase& bench, int rank, int set, NodeLimit limit = {}) {
  return make_routing(bench.routing, bench.zipf_exponent, bench.shape,
                      static_cast<std::uint64_t>(rank) * 1'000'003u + static_cast<std::uint64_t>(set) + 1, limit);
}

struct Traffic {
  std::int64_t messages = 0;  // (token, destination rank) pairs
  std::int64_t rows = 0;      // (token, k) pairs
};
Traffic traffic_of(const Shape& shape, const Routing& routing);

// Bytes of one source's tokens with this traffic.
BenchBytes bytes_of(const BenchCase& bench, const Traffic& traffic);

// The bytes of one iteration: the sum over the ranks, the mean over the input sets.
BenchBytes mean_bytes(const BenchCase& bench, int sets);

}  // namespace ferry::app
