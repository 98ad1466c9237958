// What an exchange says about itself: memory, rows that fit exactly, slow ranks.
#include <chrono>
#include <cmath>
#include <thread>

#include "conformance/cases/cases.h"
#include "conformance/rounds/rank_round.h"
#include "conformance/rounds/traffic.h"

namespace ferry::conformance {
namespace {

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
  constexpr Shape kShape{.ranks = 3, .experts = 13, .top_k = 4, .max_tokens = 200, .hidden = 512};
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
          const std::size_t most = memory_use(kShape, options, world.has_remote_ranks()).total;
          expect_equal(world.rank(), "memory_bytes is at most memory_use (1: yes)", 1,
                       exchange.memory_bytes() <= most ? 1 : 0);
          if (world.rank() == 0) expect_equal(0, "memory_bytes and memory_use", most, exchange.memory_bytes());
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
    settings.shape = {.ranks = 3,
                      .experts = 8,
                      .top_k = 8,
                      .max_tokens = 6,
                      .hidden = 32};  // every token goes to every expert: all rows are filled
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

// A rank that is only slow is waited for, and the wait is counted in both directions. All ranks begin together, and far
// less than the slow one sleeps is asked for: on a busy machine the others may begin late, too.
void wait_for_a_slow_rank(const Target& target, bool shared_expert) {
  constexpr Shape kShape{.ranks = 4, .experts = 10, .top_k = 3, .max_tokens = 9, .hidden = 64};
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
  cases.push_back({"reports/slow_rank", "a rank that is only slow is waited for", true,
                   [](const Target& b) { wait_for_a_slow_rank(b, false); }});
  cases.push_back({"reports/slow_rank_shared_expert", "a slow rank, where each has a shared expert, too", false,
                   [](const Target& b) { wait_for_a_slow_rank(b, true); }});
}

}  // namespace ferry::conformance
