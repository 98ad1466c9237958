// Random routing by inverse cumulative weights, without the distributions of <random>: they differ between libraries.
#include "ferry/bench_routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace ferry::app {
namespace {

double uniform01(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

std::vector<double> cumulative_popularity(RoutingKind kind, double exponent, int experts) {
  std::vector<double> popularity(static_cast<std::size_t>(experts), 1.0);
  if (kind == RoutingKind::zipf) {
    for (std::size_t position = 0; position < popularity.size(); ++position)
      popularity[position] = std::pow(static_cast<double>(position + 1), -exponent);
    std::mt19937_64 shuffle(experts);
    for (std::size_t left = popularity.size(); left > 1; --left)
      std::swap(popularity[left - 1], popularity[shuffle() % left]);
  }
  std::partial_sum(popularity.begin(), popularity.end(), popularity.begin());
  return popularity;
}

}  // namespace

Routing make_routing(RoutingKind kind, double exponent, const Shape& shape, std::uint64_t seed) {
  const std::vector<double> cumulative = cumulative_popularity(kind, exponent, shape.experts);
  std::mt19937_64 random(seed);
  const auto entries = static_cast<std::size_t>(shape.max_tokens) * static_cast<std::size_t>(shape.top_k);
  Routing routing{std::vector<std::int32_t>(entries), std::vector<float>(entries)};
  for (int token = 0; token < shape.max_tokens; ++token) {
    const std::ptrdiff_t first = std::ptrdiff_t{token} * shape.top_k;
    const auto ids = routing.ids.begin() + first;
    const auto weights = routing.weights.begin() + first;
    float total = 0;
    for (int k = 0; k < shape.top_k;) {
      const double drawn = uniform01(random) * cumulative.back();
      const auto found = std::upper_bound(cumulative.begin(), cumulative.end() - 1, drawn);
      const auto id = static_cast<std::int32_t>(found - cumulative.begin());
      if (std::find(ids, ids + k, id) != ids + k) continue;
      ids[k] = id;
      weights[k] = 0.1f + static_cast<float>(uniform01(random));
      total += weights[k++];
    }
    std::for_each(weights, weights + shape.top_k, [total](float& weight) { weight /= total; });
  }
  return routing;
}

Traffic traffic_of(const Shape& shape, const Routing& routing) {
  Traffic traffic;
  std::vector<int> last_token(static_cast<std::size_t>(shape.ranks), -1);
  for (std::size_t entry = 0; entry < routing.ids.size(); ++entry) {
    const int token = static_cast<int>(entry) / shape.top_k;
    int& last = last_token[static_cast<std::size_t>(owner_of(shape, routing.ids[entry]))];
    if (last != token) ++traffic.messages;
    last = token;
    ++traffic.rows;
  }
  return traffic;
}

BenchBytes bytes_of(const BenchCase& bench, const Traffic& traffic) {
  const int hidden = bench.shape.hidden;
  const double bf16_row = 2.0 * hidden;
  const double encoded_row = static_cast<double>(bench.format.payload_bytes(hidden)) +
                             static_cast<double>(scales_per_row(bench.format, hidden)) * bench.format.scale_bytes();
  const auto messages = static_cast<double>(traffic.messages);
  const auto rows = static_cast<double>(traffic.rows);
  BenchBytes bytes;
  bytes.tokens = bench.shape.max_tokens * bf16_row;
  bytes.messages = messages * static_cast<double>(message_bytes(bench.format, hidden));
  bytes.rows = rows * encoded_row;
  bytes.results = rows * bf16_row;
  bytes.partials = (bench.reduction == Reduction::exact ? rows : messages) * bf16_row;
  bytes.output = bench.shape.max_tokens * bf16_row;
  return bytes;
}

namespace {

BenchBytes& operator+=(BenchBytes& sum, const BenchBytes& more) {
  sum.tokens += more.tokens;
  sum.messages += more.messages;
  sum.rows += more.rows;
  sum.results += more.results;
  sum.partials += more.partials;
  sum.output += more.output;
  return sum;
}

BenchBytes operator/(const BenchBytes& bytes, double divisor) {
  return {bytes.tokens / divisor,  bytes.messages / divisor, bytes.rows / divisor,
          bytes.results / divisor, bytes.partials / divisor, bytes.output / divisor};
}

}  // namespace

BenchBytes mean_bytes(const BenchCase& bench, int sets) {
  BenchBytes sum;
  for (int rank = 0; rank < bench.shape.ranks; ++rank)
    for (int set = 0; set < sets; ++set)
      sum += bytes_of(bench, traffic_of(bench.shape, make_routing(bench, rank, set)));
  return sum / sets;
}

}  // namespace ferry::app
