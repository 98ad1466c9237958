#include "conformance/rounds/traffic.h"

#include <cmath>
#include <cstring>
#include <set>
#include <stdexcept>

#include "conformance/oracle/size.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {
namespace {

using test::size;

// The table of formats: bits of a code, columns and bytes of a scale.
struct FormatSize {
  const char* name;
  std::size_t bits, block, scale;
};
constexpr FormatSize kSizes[] = {{"bf16", 16, 0, 0},
                                 {"f16", 16, 0, 0},
                                 {"f32", 32, 0, 0},
                                 {"fp8_block128", 8, 128, 4},
                                 {"fp8_block128_ue8m0", 8, 128, 1},
                                 {"mxfp8", 8, 32, 1},
                                 {"mxfp6_e2m3", 6, 32, 1},
                                 {"mxfp6_e3m2", 6, 32, 1},
                                 {"mxfp4", 4, 32, 1},
                                 {"nvfp4", 4, 16, 1}};

const FormatSize& size_named(const std::string& format) {
  for (const FormatSize& size : kSizes)
    if (format == size.name) return size;
  throw std::logic_error("no size is known for " + format);
}

std::size_t scales_of(const FormatSize& size, std::size_t hidden) {
  return size.block == 0 ? 0 : (hidden + size.block - 1) / size.block;
}

std::size_t row_size(const std::string& format, std::size_t hidden) {
  const FormatSize& size = size_named(format);
  return hidden * size.bits / 8 + scales_of(size, hidden) * size.scale;
}

// A result of nvfp4 has a float32 scale besides.
std::size_t result_size(const std::string& format, std::size_t hidden) {
  const std::size_t bytes = row_size(format, hidden);
  return ((format == "nvfp4" ? (bytes + 3) / 4 * 4 + 4 : bytes) + 15) / 16 * 16;
}

// The ranks of a token's experts, in the order of its k, -1 where there is none.
std::vector<int> owners_of(const Scenario& scenario, int source, int token) {
  const Shape& shape = scenario.round.shape;
  const std::vector<std::int64_t>& ids = scenario.round.ranks[size(source)].topk_ids;
  std::vector<int> owners;
  for (int k = 0; k < shape.top_k; ++k) {
    const std::int64_t id = ids[size(std::int64_t{token} * shape.top_k + k)];
    owners.push_back(id < 0 ? -1 : owner_of(shape, static_cast<int>(id)));
  }
  return owners;
}

bool is_finite(const std::byte* at, DType dtype) {
  if (dtype == DType::f32) {
    float value = 0;
    std::memcpy(&value, at, sizeof value);
    return std::isfinite(value);
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return std::isfinite(dtype == DType::f16 ? test::from_f16(bits) : test::from_bf16(bits));
}

// Blocks of the token that have a NaN or an infinity; where the format has none, the row counts as one.
std::uint64_t non_finite_blocks(const Scenario& scenario, int rank, int token) {
  const test::RankInput& in = scenario.round.ranks[size(rank)];
  const std::size_t hidden = size(scenario.round.shape.hidden), width = size_of(in.token_dtype);
  const std::size_t block = size_named(scenario.round.options.format.name()).block;
  std::set<std::size_t> blocks;
  for (std::size_t column = 0; column < hidden; ++column)
    if (!is_finite(in.tokens.data() + (size(token) * hidden + column) * width, in.token_dtype))
      blocks.insert(block == 0 ? 0 : column / block);
  return blocks.size();
}

}  // namespace

std::size_t message_size(const std::string& format, std::size_t hidden) {
  return (row_size(format, hidden) + 15) / 16 * 16;
}

Traffic::Traffic(const Scenario& scenario, int rank)
    : shape_(scenario.round.shape),
      skips_(scenario.round.options.skip_a2a),
      rank_(rank),
      local_experts_(num_local_experts(shape_, rank)),
      messages_(skips_ ? 1 : size(shape_.ranks)),
      bytes_(messages_.size()),
      received_(messages_.size() * size(local_experts_)) {}

bool Traffic::is_away(const Scenario& scenario, int rank) const {
  return (skips_ && rank != rank_) || test::is_masked_out(scenario.round, rank) || test::is_gone(scenario.round, rank);
}

void Traffic::add_dispatch(const Scenario& scenario, Routing routing) {
  ++dispatches_;
  add_messages(scenario);
  if (routing != Routing::of_handle) add_routing(scenario);
  if (routing == Routing::sent) add_dropped(scenario);
  if (scenario.settings.by_counts)
    knows_experts_ = false;
  else
    add_rows(scenario);
}

// A token goes once to each rank that it names, and to its own where that has a shared expert.
void Traffic::add_messages(const Scenario& scenario) {
  const std::size_t bytes = message_size(scenario.round.options.format.name(), size(scenario.round.shape.hidden));
  for (int token = 0; token < scenario.round.ranks[size(rank_)].num_tokens; ++token) {
    std::set<int> named;
    for (const int owner : owners_of(scenario, rank_, token))
      if (owner >= 0 && !is_away(scenario, owner)) named.insert(owner);
    if (scenario.round.options.fused_shared_expert) named.insert(rank_);
    for (const int peer : named) {
      ++messages_[place(peer)];
      bytes_[place(peer)] += bytes;
    }
    if (!named.empty()) non_finite_ += non_finite_blocks(scenario, rank_, token);
  }
}

// To every other rank: header, table, counts of its experts; where rows may be by_source, a word for the list and one
// for each 32 tokens; by counts, what this rank gave for its experts.
void Traffic::add_routing(const Scenario& scenario) {
  const auto n = size(scenario.round.ranks[size(rank_)].num_tokens);
  for (int peer = 0; peer < shape_.ranks; ++peer) {
    if (peer == rank_ || is_away(scenario, peer)) continue;
    const std::uint64_t counts = 4 * size(num_local_experts(shape_, peer));
    bytes_[place(peer)] += 64 + n * 8 * size(shape_.top_k) + counts;
    if (scenario.round.options.row_orders.has(RowOrder::by_source)) bytes_[place(peer)] += 8 * (1 + (n + 31) / 32);
    if (scenario.settings.by_counts) bytes_[place(peer)] += counts;
  }
}

// By counts a token names a rank once.
void Traffic::add_dropped(const Scenario& scenario) {
  for (int token = 0; token < scenario.round.ranks[size(rank_)].num_tokens; ++token) {
    std::set<int> ranks;
    for (const int owner : owners_of(scenario, rank_, token)) {
      if (owner < 0 || !test::is_masked_out(scenario.round, owner)) continue;
      dropped_ += scenario.settings.by_counts && ranks.contains(owner) ? 0 : 1;
      ranks.insert(owner);
    }
  }
}

void Traffic::add_rows(const Scenario& scenario) {
  const std::size_t bytes = row_size(scenario.round.options.format.name(), size(scenario.round.shape.hidden));
  for (int source = 0; source < shape_.ranks; ++source) {
    if (is_away(scenario, source)) continue;
    for (const std::int64_t id : scenario.round.ranks[size(source)].topk_ids) {
      if (id < 0 || owner_of(shape_, static_cast<int>(id)) != rank_) continue;
      ExpertTraffic& pair = received_[place(source) * size(local_experts_) + size(id - first_expert(shape_, rank_))];
      ++pair.tokens;
      pair.bytes += bytes;
    }
  }
}

// A result for each token that names this rank, or for each of its rows. Rows by_source are sums.
void Traffic::add_combine(const Scenario& scenario) {
  ++combines_;
  const std::size_t bytes = result_size(scenario.round.options.result_format.name(), size(scenario.round.shape.hidden));
  for (int source = 0; source < shape_.ranks; ++source) {
    if (is_away(scenario, source)) continue;
    for (int token = 0; token < scenario.round.ranks[size(source)].num_tokens; ++token) {
      std::uint64_t rows = 0;
      for (const int owner : owners_of(scenario, source, token)) rows += owner == rank_ ? 1 : 0;
      if (scenario.round.reduction != Reduction::exact) rows = rows != 0 ? 1 : 0;
      bytes_[place(source)] += rows * bytes;
    }
  }
}

void Traffic::check(const Stats& stats) const {
  expect_equal(rank_, "Stats::ranks", messages_.size(), size(stats.ranks));
  expect_equal(rank_, "Stats::local_experts", size(local_experts_), size(stats.local_experts));
  expect_equal(rank_, "Stats::dispatches", dispatches_, stats.dispatches);
  expect_equal(rank_, "Stats::combines", combines_, stats.combines);
  expect_equal(rank_, "Stats::dropped", dropped_, stats.dropped);
  expect_equal(rank_, "Stats::non_finite_blocks", non_finite_, stats.non_finite_blocks);
  for (int peer = 0; peer < stats.ranks; ++peer) {
    const std::string of = " of rank " + std::to_string(peer);
    expect_equal(rank_, "Stats::messages_sent" + of, messages_.at(size(peer)), stats.messages_sent.at(size(peer)));
    expect_equal(rank_, "Stats::bytes_sent" + of, bytes_.at(size(peer)), stats.bytes_sent.at(size(peer)));
    for (int local = 0; knows_experts_ && local < local_experts_; ++local) {
      const ExpertTraffic& expected = received_.at(size(peer * local_experts_ + local));
      const std::string pair = of + ", expert " + std::to_string(local);
      expect_equal(rank_, "Stats::received tokens" + pair, expected.tokens, stats.from(peer, local).tokens);
      expect_equal(rank_, "Stats::received bytes" + pair, expected.bytes, stats.from(peer, local).bytes);
    }
  }
}

}  // namespace ferry::conformance
