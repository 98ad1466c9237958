// The generators behind the named routings, and the list of shapes.
#include "conformance/oracle/routing_patterns.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>

namespace ferry::test {

std::uint64_t Random::bits() {
  state_ += 0x9e3779b97f4a7c15u;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

namespace {

using Ids = std::span<std::int64_t>;
using TokenFiller = std::function<void(int rank, int token, Ids ids)>;

Routing fill(const Shape& shape, const std::function<int(int rank)>& num_tokens, const TokenFiller& fill_token) {
  const auto top_k = static_cast<std::size_t>(shape.top_k);
  Routing routing(static_cast<std::size_t>(shape.ranks));
  for (int rank = 0; rank < shape.ranks; ++rank) {
    RankRouting& mine = routing[static_cast<std::size_t>(rank)];
    mine.num_tokens = num_tokens(rank);
    mine.topk_ids.assign(static_cast<std::size_t>(mine.num_tokens) * top_k, -1);
    for (int token = 0; token < mine.num_tokens; ++token)
      fill_token(rank, token, Ids(mine.topk_ids).subspan(static_cast<std::size_t>(token) * top_k, top_k));
  }
  return routing;
}

// Distinct experts of [first, first + count), in random order; what does not fit stays -1.
void draw_distinct(Random& random, int first, int count, Ids ids) {
  std::vector<std::int64_t> pool(static_cast<std::size_t>(count));
  std::iota(pool.begin(), pool.end(), first);
  const std::size_t wanted = std::min(ids.size(), pool.size());
  for (std::size_t i = 0; i < wanted; ++i) {
    std::swap(pool[i], pool[i + static_cast<std::size_t>(random.below(static_cast<int>(pool.size() - i)))]);
    ids[i] = pool[i];
  }
}

std::function<int(int)> full(const Shape& shape) {
  return [tokens = shape.max_tokens](int) { return tokens; };
}

Routing uniform(const Shape& shape, Random& random) {
  return fill(shape, full(shape), [&](int, int, Ids ids) { draw_distinct(random, 0, shape.experts, ids); });
}

Routing zipf(const Shape& shape, Random& random) {
  std::vector<double> cumulative;
  double total = 0;
  for (int expert = 0; expert < shape.experts; ++expert) cumulative.push_back(total += 1.0 / (expert + 1));
  return fill(shape, full(shape), [&](int, int, Ids ids) {
    std::vector<bool> taken(static_cast<std::size_t>(shape.experts), false);
    for (std::int64_t& id : ids) {
      const double at = random.unit() * total;
      auto expert =
          static_cast<std::size_t>(std::upper_bound(cumulative.begin(), cumulative.end(), at) - cumulative.begin());
      while (taken[expert % taken.size()]) ++expert;
      expert %= taken.size();
      taken[expert] = true;
      id = static_cast<std::int64_t>(expert);
    }
  });
}

Routing one_rank(const Shape& shape, Random& random) {
  const int rank = shape.ranks - 1;
  return fill(shape, full(shape), [&](int, int, Ids ids) {
    draw_distinct(random, first_expert(shape, rank), num_local_experts(shape, rank), ids);
  });
}

Routing own_rank(const Shape& shape, Random& random) {
  return fill(shape, full(shape), [&](int rank, int, Ids ids) {
    draw_distinct(random, first_expert(shape, rank), num_local_experts(shape, rank), ids);
  });
}

Routing one_expert(const Shape& shape, Random& random) {
  return fill(shape, full(shape),
              [&](int, int, Ids ids) { ids[static_cast<std::size_t>(random.below(shape.top_k))] = shape.experts / 2; });
}

Routing same_experts(const Shape& shape, Random&) {
  return fill(shape, full(shape), [&](int, int, Ids ids) {
    for (std::size_t k = 0; k < ids.size(); ++k) ids[k] = static_cast<std::int64_t>(ids.size() - 1 - k);
  });
}

Routing none(const Shape& shape, Random&) {
  return fill(shape, full(shape), [](int, int, Ids) {});
}

Routing some_none(const Shape& shape, Random& random) {
  return fill(shape, full(shape), [&](int, int, Ids ids) {
    draw_distinct(random, 0, shape.experts, ids);
    for (std::int64_t& id : ids)
      if (random.chance(0.4)) id = -1;
  });
}

Routing empty_ranks(const Shape& shape, Random& random) {
  return fill(
      shape, [&](int rank) { return rank % 2 == 0 ? 0 : shape.max_tokens; },
      [&](int, int, Ids ids) { draw_distinct(random, 0, shape.experts, ids); });
}

Routing no_tokens(const Shape& shape, Random&) {
  return fill(
      shape, [](int) { return 0; }, [](int, int, Ids) {});
}

Routing one_token(const Shape& shape, Random& random) {
  return fill(
      shape, [](int) { return 1; }, [&](int, int, Ids ids) { draw_distinct(random, 0, shape.experts, ids); });
}

Routing ragged(const Shape& shape, Random& random) {
  return fill(
      shape, [&](int) { return random.between(0, shape.max_tokens); },
      [&](int, int, Ids ids) {
        draw_distinct(random, 0, shape.experts, ids);
        if (random.chance(0.2)) ids[static_cast<std::size_t>(random.below(shape.top_k))] = -1;
      });
}

constexpr RoutingCase kRoutings[] = {
    {"uniform", "max tokens on every rank, distinct experts drawn evenly", uniform},
    {"zipf", "a few experts get most of the tokens", zipf},
    {"one_rank", "every token goes to the last rank", one_rank},
    {"own_rank", "every token stays on its own rank", own_rank},
    {"one_expert", "every token goes to one expert, at a random k", one_expert},
    {"same_experts", "every token names the same experts", same_experts},
    {"none", "every id is -1", none},
    {"some_none", "four ids in ten are -1", some_none},
    {"empty_ranks", "even ranks have no tokens", empty_ranks},
    {"no_tokens", "no rank has tokens", no_tokens},
    {"one_token", "one token on every rank", one_token},
    {"ragged", "a random number of tokens on each rank, some ids -1", ragged},
};

constexpr ShapeCase kShapes[] = {
    // ranks, experts, top_k, max_tokens, hidden
    {"smallest", {1, 1, 1, 1, 32}},
    {"one_rank", {1, 8, 2, 16, 64}},
    {"top_1", {2, 8, 1, 33, 32}},
    {"top_22", {4, 64, 22, 9, 32}},
    {"top_32", {3, 40, 32, 7, 32}},
    {"all_experts", {4, 6, 6, 12, 96}},
    {"uneven_experts", {3, 7, 3, 17, 160}},
    {"expert_per_rank", {5, 5, 2, 10, 32}},
    {"eight_ranks", {8, 32, 8, 24, 64}},
    {"thirty_two_ranks", {32, 40, 32, 3, 32}},
    {"seventy_two_ranks", {72, 75, 4, 3, 32}},
    {"thousand_experts", {2, 1000, 8, 32, 32}},
    {"eight_thousand_experts", {2, 8192, 2, 250, 32}},  // a GPU ranks a part of the table in several chunks
    {"long_experts", {2, 4, 2, 300, 32}},
    {"hidden_2880", {2, 8, 4, 16, 2880}},
    {"hidden_7168", {4, 16, 8, 6, 7168}},
};

}  // namespace

std::span<const RoutingCase> routing_cases() { return kRoutings; }
std::span<const ShapeCase> shape_cases() { return kShapes; }

Routing make_routing(std::string_view name, const Shape& shape, Random& random) {
  for (const RoutingCase& routing : kRoutings)
    if (name == routing.name) return routing.make(shape, random);
  throw std::logic_error("no routing is named " + std::string(name));
}

Shape random_shape(Random& random, int max_ranks) {
  Shape shape;
  shape.ranks = random.between(1, max_ranks);
  shape.experts = shape.ranks + random.below(random.chance(0.2) ? 100 : 16);
  shape.top_k = random.between(1, std::min(shape.experts, random.chance(0.2) ? 32 : 8));
  shape.max_tokens = random.between(1, random.chance(0.2) ? 80 : 24);
  shape.hidden = 32 * random.between(1, random.chance(0.1) ? 40 : 10);
  return shape;
}

}  // namespace ferry::test
