// Named shapes and routings: the inputs on which every target is tried, and the random numbers that fill them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ferry/shape.h"

namespace ferry::test {

// SplitMix64: the same numbers with every compiler and standard library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits();
  int below(int limit) { return static_cast<int>(bits() % static_cast<std::uint64_t>(limit)); }
  int between(int low, int high) { return low + below(high - low + 1); }  // both ends included
  double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }   // in [0, 1)
  bool chance(double probability) { return unit() < probability; }

 private:
  std::uint64_t state_;
};

// What one rank routes: ids [num_tokens, top_k], distinct in a token, -1 for no expert.
struct RankRouting {
  int num_tokens = 0;
  std::vector<std::int64_t> topk_ids;
};
using Routing = std::vector<RankRouting>;  // by rank

struct RoutingCase {
  const char* name;
  const char* what;
  Routing (*make)(const Shape& shape, Random& random);
};
std::span<const RoutingCase> routing_cases();
Routing make_routing(std::string_view name, const Shape& shape, Random& random);

struct ShapeCase {
  const char* name;
  Shape shape;
};
std::span<const ShapeCase> shape_cases();

// A shape whose parts are drawn at random, small enough to try hundreds.
Shape random_shape(Random& random, int max_ranks);

}  // namespace ferry::test
