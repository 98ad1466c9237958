// Random routing by inverse cumulative weights, without the distributions of <random>: they differ between libraries.
#include "tool/bench/base/bench_routing.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "ferry/detail/layout/result_layout.h"

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

// Draws the experts of one token after the other by popularity, from few nodes where there is a limit.
class Drawer {
 public:
  Drawer(std::vector<double> cumulative, const Shape& shape, NodeLimit limit)
      : cumulative_(std::move(cumulative)), shape_(shape), limit_(limit) {}

  void start_token() { nodes_.clear(); }

  // One that is not among the token's `count` experts so far.
  std::int32_t draw(std::mt19937_64& random, const std::int32_t* taken, int count) {
    const auto is_free = [&](std::int32_t id) { return std::find(taken, taken + count, id) == taken + count; };
    std::int32_t id = 0;
    for (int tries = 0; tries < kTries; ++tries) {
      id = draw_any(random);
      if (is_free(id)) break;
    }
    while (!is_free(id) || !may_take(id)) id = (id + 1) % shape_.experts;  // few are popular, and they are taken
    if (limit_.nodes != 0 && !has_node(node_of(id))) nodes_.push_back(node_of(id));
    return id;
  }

 private:
  static constexpr int kTries = 1000;

  std::int32_t draw_any(std::mt19937_64& random) const {
    const double drawn = uniform01(random);
    if (limit_.nodes == 0 || std::ssize(nodes_) < limit_.nodes) return find(drawn * cumulative_.back());
    double mass = 0;
    for (const int node : nodes_) mass += mass_of(node);
    double left = drawn * mass;
    std::size_t at = 0;
    while (at + 1 < nodes_.size() && left >= mass_of(nodes_[at])) left -= mass_of(nodes_[at++]);
    return find_within(nodes_[at], left);
  }
  int node_of(std::int32_t id) const { return owner_of(shape_, id) / limit_.ranks_per_node; }
  bool has_node(int node) const { return std::find(nodes_.begin(), nodes_.end(), node) != nodes_.end(); }
  bool may_take(std::int32_t id) const {
    return limit_.nodes == 0 || std::ssize(nodes_) < limit_.nodes || has_node(node_of(id));
  }
  int first_expert_of(int node) const {
    const int rank = node * limit_.ranks_per_node;
    return rank >= shape_.ranks ? shape_.experts : first_expert(shape_, rank);
  }
  double mass_before(int node) const {
    const int expert = first_expert_of(node);
    return expert == 0 ? 0 : cumulative_[static_cast<std::size_t>(expert) - 1];
  }
  double mass_of(int node) const { return mass_before(node + 1) - mass_before(node); }
  std::int32_t find(double drawn) const {
    const auto found = std::upper_bound(cumulative_.begin(), cumulative_.end() - 1, drawn);
    return static_cast<std::int32_t>(found - cumulative_.begin());
  }
  std::int32_t find_within(int node, double drawn) const {  // rounding must not leave the node
    return std::clamp(find(mass_before(node) + drawn), first_expert_of(node), first_expert_of(node + 1) - 1);
  }

  std::vector<double> cumulative_;
  const Shape& shape_;
  NodeLimit limit_;
  std::vector<int> nodes_;  // of this token
};

void require_room(const Shape& shape, NodeLimit limit) {
  if (limit.nodes == 0) return;
  const int nodes = (shape.ranks + limit.ranks_per_node - 1) / limit.ranks_per_node;
  std::vector<int> experts(static_cast<std::size_t>(nodes));
  for (int rank = 0; rank < shape.ranks; ++rank)
    experts[static_cast<std::size_t>(rank / limit.ranks_per_node)] += num_local_experts(shape, rank);
  std::sort(experts.begin(), experts.end());
  const int fewest = std::accumulate(experts.begin(), experts.begin() + std::min(limit.nodes, nodes), 0);
  if (fewest < shape.top_k)
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("a token's experts cannot lie in {} node{} of {} ranks: those with the fewest have {}, top_k is {} "
                    "(got {})",
                    limit.nodes, limit.nodes == 1 ? "" : "s", limit.ranks_per_node, fewest, shape.top_k,
                    to_string(shape)));
}

}  // namespace

Routing make_routing(RoutingKind kind, double exponent, const Shape& shape, std::uint64_t seed, NodeLimit limit) {
  require_room(shape, limit);
  Drawer drawer(cumulative_popularity(kind, exponent, shape.experts), shape, limit);
  std::mt19937_64 random(seed);
  const auto entries = static_cast<std::size_t>(shape.max_tokens) * static_cast<std::size_t>(shape.top_k);
  Routing routing{std::vector<std::int32_t>(entries), std::vector<float>(entries)};
  for (int token = 0; token < shape.max_tokens; ++token) {
    const std::ptrdiff_t first = std::ptrdiff_t{token} * shape.top_k;
    const auto ids = routing.ids.begin() + first;
    const auto weights = routing.weights.begin() + first;
    float total = 0;
    drawer.start_token();
    for (int k = 0; k < shape.top_k; ++k) {
      ids[k] = drawer.draw(random, &*ids, k);
      weights[k] = 0.1f + static_cast<float>(uniform01(random));
      total += weights[k];
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
  bytes.tokens = bench.shape.max_tokens * (bench.encoded ? encoded_row : bf16_row);
  bytes.messages = messages * static_cast<double>(message_bytes(bench.format, hidden));
  const double laid_out = bench.rows == RowOrder::by_source ? messages : rows;
  bytes.rows = bench.rows == RowOrder::in_place ? 0 : laid_out * encoded_row;
  bytes.results = laid_out * bf16_row;
  bytes.partials = (bench.reduction == Reduction::exact ? rows : messages) *
                   static_cast<double>(result_layout(bench.results, hidden).bytes);
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
