// What an exchange says about itself: memory, layout of the rows, statistics; and the calls over all exchanges of a
// process.
#include <atomic>
#include <chrono>
#include <cmath>
#include <numeric>
#include <set>
#include <thread>

#include "conformance/cases/cases.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {
namespace {

// Bytes of a message, from the table of formats: bits of a code, columns and bytes of a scale.
std::size_t message_size(const std::string& format, std::size_t hidden) {
  struct Size {
    const char* name;
    std::size_t bits, block, scale;
  };
  constexpr Size kSizes[] = {{"bf16", 16, 0, 0},  {"fp8_block128", 8, 128, 4}, {"fp8_block128_ue8m0", 8, 128, 1},
                             {"mxfp8", 8, 32, 1}, {"mxfp6_e2m3", 6, 32, 1},    {"mxfp6_e3m2", 6, 32, 1},
                             {"mxfp4", 4, 32, 1}, {"nvfp4", 4, 16, 1}};
  for (const Size& size : kSizes) {
    if (format != size.name) continue;
    const std::size_t scales = size.block == 0 ? 0 : (hidden + size.block - 1) / size.block * size.scale;
    return (hidden * size.bits / 8 + scales + 15) / 16 * 16;
  }
  throw std::logic_error("no size is known for " + format);
}

// The formula of the contract, in bytes on each rank.
double memory_by_formula(const Shape& s, const ExchangeOptions& options, bool has_remote_ranks) {
  const bool exact = options.reduction == Reduction::exact;
  const double ranks = options.skip_a2a ? 1 : s.ranks;
  const double tokens = s.max_tokens;
  const double top_k = s.top_k;
  const double local = std::ceil(static_cast<double>(s.experts) / s.ranks);
  const double row = 2.0 * s.hidden;
  const auto message = static_cast<double>(message_size(options.format.name(), static_cast<std::size_t>(s.hidden)));
  const double slots = exact ? top_k : std::min(ranks, top_k);
  double bytes = 2 * ranks * tokens * (message + 8 * top_k) + slots * tokens * row;
  bytes += ranks * (16 * tokens + 8 * local + 256) + 8 * tokens * slots;
  if (has_remote_ranks) bytes += 2 * tokens * message + ranks * tokens * row * (exact ? top_k : 1);
  return bytes;
}

void expect_within_5_percent(int rank, const std::string& place, double expected, std::size_t got) {
  if (std::fabs(static_cast<double>(got) - expected) > 0.05 * expected)
    throw Failure(rank, place, std::to_string(expected) + " bytes within 5 %", std::to_string(got));
}

void memory_of_shapes(const Target&) {
  constexpr Shape kLarge[] = {{8, 256, 8, 128, 7168}, {2, 64, 8, 512, 7168}, {4, 7, 6, 300, 2880},
                              {72, 288, 8, 64, 4096}, {1, 16, 4, 256, 1024}, {16, 1000, 32, 4096, 7168}};
  for (const Shape& shape : kLarge) {
    for (const AnyFormat& format : all_formats()) {
      for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) {
        for (const bool has_remote_ranks : {false, true}) {
          ExchangeOptions options = options_for(format.name(), reduction);
          const MemoryUse use = memory_use(shape, options, has_remote_ranks);
          const std::string place = "memory_use of " + to_string(shape) + " " + format.name();
          expect_within_5_percent(-1, place, memory_by_formula(shape, options, has_remote_ranks), use.total);
          std::size_t sum = 0;
          for (const MemoryUse::Region& region : use.regions) sum += region.bytes;
          expect_equal(-1, place + ": sum of its regions", use.total, sum);
        }
      }
    }
  }
}

void memory_of_exchanges(const Target& target) {
  constexpr Shape kShape{3, 13, 4, 200, 512};
  for (const char* format : {"bf16", "nvfp4"}) {
    for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) {
      for (const bool skip : {false, true}) {
        ExchangeOptions options = options_for(format, reduction);
        options.skip_a2a = skip;
        on_ranks(target, kShape.ranks, "memory of an exchange", [&](World& world) {
          const Exchange exchange(world, kShape, options);
          const bool has_remote_ranks = !skip && target.has_remote_ranks && target.has_remote_ranks(world);
          expect_within_5_percent(world.rank(), "memory_bytes", memory_by_formula(kShape, options, has_remote_ranks),
                                  exchange.memory_bytes());
        });
      }
    }
  }
}

// The smallest row capacity is the documented one and is enough for the worst case. One row less is refused where the
// host does not learn what came; the cases sizes/ have the others.
void exact_row_capacity(const Target& target) {
  for (const char* format : {"bf16", "fp8_block128", "nvfp4"}) {
    ScenarioSettings settings;
    settings.shape = {3, 8, 8, 6, 32};  // every token goes to every expert: all rows are filled
    settings.options = options_for(format);
    settings.options.fused_shared_expert = true;
    settings.options.expert_alignment = format == std::string("bf16") ? 16 : 0;
    settings.spare_rows = 0;
    const Scenario scenario = make_scenario(settings);
    on_ranks(target, settings.shape.ranks, describe(settings), [&](World& world) {
      const int rank = world.rank();
      Exchange exchange(world, settings.shape, settings.options);
      const std::int64_t capacity = scenario.row_capacity[static_cast<std::size_t>(rank)];
      expect_equal(rank, "min_row_capacity", static_cast<std::uint64_t>(capacity),
                   static_cast<std::uint64_t>(exchange.layout().min_row_capacity));
      run_round(exchange, scenario, Form::split);
      if (world.capabilities().row_counts) return;
      RankRound small(scenario, rank);
      small.out.payload.shape[0] = capacity - 1;
      small.out.src_info.shape[0] = capacity - 1;
      expect_error(rank, "a row too few", ErrorKind::invalid_argument,
                   {std::to_string(capacity - 1), std::to_string(capacity)},
                   [&] { exchange.dispatch(small.in, small.out); });
    });
  }
}

struct Traffic {
  std::vector<std::uint64_t> messages;  // to each rank
  std::vector<std::uint64_t> partials;  // to each rank
  std::vector<std::uint64_t> received;  // [source, local expert]
};

std::set<int> named_ranks(const Scenario& scenario, int source, int token) {
  const Shape& shape = scenario.round.shape;
  std::set<int> named;
  for (int k = 0; k < shape.top_k; ++k) {
    const std::int64_t at = std::int64_t{token} * shape.top_k + k;
    const std::int64_t id =
        scenario.round.ranks[static_cast<std::size_t>(source)].topk_ids[static_cast<std::size_t>(at)];
    if (id >= 0) named.insert(owner_of(shape, static_cast<int>(id)));
  }
  return named;
}

Traffic traffic_of(const Scenario& scenario, int rank) {
  const Shape& shape = scenario.round.shape;
  const int local = num_local_experts(shape, rank);
  Traffic traffic{std::vector<std::uint64_t>(static_cast<std::size_t>(shape.ranks)),
                  std::vector<std::uint64_t>(static_cast<std::size_t>(shape.ranks)),
                  std::vector<std::uint64_t>(static_cast<std::size_t>(shape.ranks) * static_cast<std::size_t>(local))};
  for (int source = 0; source < shape.ranks; ++source) {
    for (int token = 0; token < scenario.round.ranks[static_cast<std::size_t>(source)].num_tokens; ++token) {
      std::set<int> named = named_ranks(scenario, source, token);
      if (named.contains(rank)) ++traffic.partials[static_cast<std::size_t>(source)];
      if (scenario.round.options.fused_shared_expert) named.insert(source);
      for (const int peer : named)
        if (source == rank) ++traffic.messages[static_cast<std::size_t>(peer)];
    }
  }
  for (int source = 0; source < shape.ranks; ++source)
    for (const std::int64_t id : scenario.round.ranks[static_cast<std::size_t>(source)].topk_ids)
      if (id >= 0 && owner_of(shape, static_cast<int>(id)) == rank)
        ++traffic.received[static_cast<std::size_t>(source * local + static_cast<int>(id) - first_expert(shape, rank))];
  return traffic;
}

// Messages, partials and, to other ranks, routing: header, table and counts.
std::uint64_t bytes_to(const Scenario& scenario, const Traffic& traffic, int rank, int peer) {
  const Shape& shape = scenario.round.shape;
  const auto at = static_cast<std::size_t>(peer);
  const auto n = static_cast<std::size_t>(scenario.round.ranks[static_cast<std::size_t>(rank)].num_tokens);
  std::uint64_t bytes = traffic.messages[at] * message_size("mxfp8", static_cast<std::size_t>(shape.hidden)) +
                        traffic.partials[at] * 2 * static_cast<std::uint64_t>(shape.hidden);
  if (peer != rank)
    bytes += n * 8 * static_cast<std::uint64_t>(shape.top_k) + 64 +
             4 * static_cast<std::uint64_t>(num_local_experts(shape, peer));
  return bytes;
}

// Counted against the routing while another thread reads the statistics all the time. Rounds of many tokens come first,
// one for each copy of the buffers: what these still hold of a token that is not there any more counts for nothing.
void statistics(const Target& target) {
  ScenarioSettings settings;
  settings.shape = {3, 8, 4, 15, 160};
  settings.options = options_for("mxfp8");
  settings.options.fused_shared_expert = true;
  settings.routing = "uniform";
  constexpr std::uint64_t kRounds = 2;  // of each scenario
  const Scenario many = make_scenario(settings);
  settings.routing = "ragged";
  const Scenario few = make_scenario(settings);
  on_ranks(target, settings.shape.ranks, describe(settings), [&](World& world) {
    const int rank = world.rank();
    Exchange exchange(world, settings.shape, settings.options);
    std::atomic<bool> done{false};
    std::thread reader([&] {
      while (!done) (void)exchange.stats();
    });
    std::exception_ptr failed;
    try {
      for (const Scenario* scenario : {&many, &few})
        for (std::uint64_t round = 0; round < kRounds; ++round) run_round(exchange, *scenario, Form::split);
    } catch (...) {
      failed = std::current_exception();
    }
    done = true;
    reader.join();
    if (failed) std::rethrow_exception(failed);
    const Stats stats = exchange.stats();
    const auto over_all = [&](const auto& count) {
      return kRounds * (count(many, traffic_of(many, rank)) + count(few, traffic_of(few, rank)));
    };
    const std::uint64_t row_bytes = 160 + 160 / 32;
    expect_equal(rank, "Stats::dispatches", 2 * kRounds, stats.dispatches);
    expect_equal(rank, "Stats::combines", 2 * kRounds, stats.combines);
    expect_equal(rank, "Stats::dropped", 0, stats.dropped);
    for (int peer = 0; peer < settings.shape.ranks; ++peer) {
      const auto at = static_cast<std::size_t>(peer);
      const std::string of = " of rank " + std::to_string(peer);
      expect_equal(rank, "Stats::messages_sent" + of,
                   over_all([&](const Scenario&, const Traffic& traffic) { return traffic.messages[at]; }),
                   stats.messages_sent[at]);
      expect_equal(rank, "Stats::bytes_sent" + of, over_all([&](const Scenario& scenario, const Traffic& traffic) {
                     return bytes_to(scenario, traffic, rank, peer);
                   }),
                   stats.bytes_sent[at]);
      for (int local = 0; local < stats.local_experts; ++local) {
        const std::size_t pair = at * static_cast<std::size_t>(stats.local_experts) + static_cast<std::size_t>(local);
        const std::uint64_t rows =
            over_all([&](const Scenario&, const Traffic& traffic) { return traffic.received[pair]; });
        expect_equal(rank, "Stats::received tokens" + of, rows, stats.from(peer, local).tokens);
        expect_equal(rank, "Stats::received bytes" + of, rows * row_bytes, stats.from(peer, local).bytes);
      }
    }
  });
}

// A rank that is only slow is waited for, and the wait is counted in both directions. All ranks begin together, and far
// less than the slow one sleeps is asked for: on a busy machine the others may begin late, too.
void wait_for_a_slow_rank(const Target& target, bool shared_expert) {
  constexpr Shape kShape{4, 10, 3, 9, 64};
  constexpr int kSlow = 2;
  constexpr std::chrono::milliseconds kLate{400};
  constexpr std::uint64_t kLeastNs = 20'000'000;
  ScenarioSettings settings;
  settings.shape = kShape;
  settings.options = options_for("bf16", Reduction::by_rank);
  settings.options.fused_shared_expert = shared_expert;
  const Scenario scenario = make_scenario(settings);
  on_ranks(target, kShape.ranks, "a slow rank", [&](World& world) {
    Exchange exchange(world, kShape, settings.options);
    RankRound round(scenario, world.rank());
    world.barrier();
    if (world.rank() == kSlow) std::this_thread::sleep_for(kLate);
    run_dispatch(exchange, round, Form::split);
    round.check_rows();
    const std::uint64_t in_dispatch = exchange.stats().waited_ns[kSlow];
    world.barrier();
    if (world.rank() == kSlow) std::this_thread::sleep_for(kLate);
    run_combine(exchange, round, Form::split);
    round.check_tokens();
    const std::uint64_t in_combine = exchange.stats().waited_ns[kSlow] - in_dispatch;
    for (const std::uint64_t waited : {in_dispatch, in_combine})
      if (world.rank() != kSlow && waited < kLeastNs)
        throw Failure(world.rank(), "Stats::waited_ns of the slow rank, in dispatch and in combine", "at least 20 ms",
                      std::to_string(in_dispatch) + " and " + std::to_string(in_combine) + " ns");
  });
}

}  // namespace

void add_report_cases(Cases& cases) {
  cases.push_back(
      {"reports/memory_use", "memory_use agrees with the formula, whatever the shape", true, memory_of_shapes});
  cases.push_back({"reports/memory_bytes", "an exchange allocates what the formula says", true, memory_of_exchanges});
  cases.push_back(
      {"reports/row_capacity", "the smallest row capacity suffices and one less is refused", true, exact_row_capacity});
  cases.push_back(
      {"reports/statistics", "tokens, messages and bytes are counted, and can be read at any time", true, statistics});
  cases.push_back({"reports/slow_rank", "a rank that is only slow is waited for", true,
                   [](const Target& b) { wait_for_a_slow_rank(b, false); }});
  cases.push_back({"reports/slow_rank_shared_expert", "a slow rank, where each has a shared expert, too", false,
                   [](const Target& b) { wait_for_a_slow_rank(b, true); }});
}

}  // namespace ferry::conformance
