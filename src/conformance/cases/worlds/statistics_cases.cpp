// Cases over Exchange::stats(): what is counted in each call, and how long a rank can have waited.
#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>

#include "conformance/cases/cases.h"
#include "conformance/rounds/handle_sequence.h"
#include "conformance/rounds/rank_round.h"
#include "conformance/rounds/traffic.h"

namespace ferry::conformance {
namespace {

constexpr RowOrders kAllOrders{RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};

ScenarioSettings settings_for(const char* format, Reduction reduction, const char* results, RowOrder order) {
  ScenarioSettings settings;
  settings.shape = {.ranks = 3, .experts = 8, .top_k = 4, .max_tokens = 15, .hidden = 160};
  settings.options = options_for(format, reduction);
  settings.options.result_format = result_format_named(results);
  if (order == RowOrder::by_source) settings.options.row_orders = kAllOrders;
  settings.row_orders = {order};
  settings.routing = "ragged";
  settings.seed = 91;
  return settings;
}

// Counted against the routing while another thread reads the statistics all the time. Rounds of many tokens come first,
// one for each copy of the buffers: what these still hold of a token that is not there any more counts for nothing.
void read_at_any_time(const Target& target) {
  ScenarioSettings settings = settings_for("mxfp8", Reduction::by_rank, "bf16", RowOrder::by_expert);
  settings.options.fused_shared_expert = true;
  settings.routing = "uniform";
  const Scenario many = make_scenario(settings);
  settings.routing = "ragged";
  const Scenario few = make_scenario(settings);
  on_ranks(target, settings.shape.ranks, describe(settings), [&](World& world) {
    Traffic traffic(many, world.rank());
    Exchange exchange(world, settings.shape, settings.options);
    std::atomic<bool> done{false};
    std::thread reader([&] {
      while (!done) (void)exchange.stats();
    });
    std::exception_ptr failed;
    try {
      for (const Scenario* scenario : {&many, &few})
        for (int round = 0; round < 2; ++round) {
          run_round(exchange, *scenario, Form::split);
          traffic.add_dispatch(*scenario);
          traffic.add_combine(*scenario);
        }
    } catch (...) {
      failed = std::current_exception();
    }
    done = true;
    reader.join();
    if (failed) std::rethrow_exception(failed);
    traffic.check(exchange.stats());
  });
}

// A rank's calls on one exchange, after each of which its statistics are compared.
class Counter {
 public:
  Counter(const World& world, Exchange& exchange, const Scenario& scenario)
      : exchange_(exchange),
        of_replays_(world.capabilities().gpus ? Traffic::Routing::sent_again : Traffic::Routing::of_handle),
        traffic_(scenario, exchange.rank()) {}

  void keep(const Scenario& scenario, HandleMemory& handle, Form form) {
    RankRound round(scenario, exchange_.rank());
    round.out.handle = handle.tensor();
    run_dispatch(exchange_, round, form);
    round.check_rows();
    traffic_.add_dispatch(scenario);
    check();
    run_combine(exchange_, round, form);
    round.check_tokens();
    traffic_.add_combine(scenario);
    check();
  }
  void replay(const Scenario& scenario, HandleMemory& handle, Form form) {
    RankRound round(scenario, exchange_.rank());
    round.in = input_with(round, handle);
    run_dispatch(exchange_, round, form);
    round.check_rows();
    traffic_.add_dispatch(scenario, of_replays_);
    check();
  }
  void combine(const Scenario& scenario, HandleMemory& handle, Form form) {
    RankRound round(scenario, exchange_.rank());
    round.combine_in = combine_input_with(round, handle);
    round.combine_in.src_info = {};
    run_combine(exchange_, round, form);
    round.check_tokens();
    traffic_.add_combine(scenario);
    check();
  }
  void round(const Scenario& scenario, Form form) {
    run_round(exchange_, scenario, form);
    traffic_.add_dispatch(scenario);
    traffic_.add_combine(scenario);
    check();
  }

 private:
  void check() const { traffic_.check(exchange_.stats()); }

  Exchange& exchange_;
  Traffic::Routing of_replays_;
  Traffic traffic_;
};

// A round, a replay, and combines with their handle; of an exchange whose combines choose, both.
void with_handles(const Target& target, const ScenarioSettings& wanted) {
  const ScenarioSettings settings = fitted(target, wanted);
  const Scenario first = make_scenario(settings), again = with_other_tokens(first, settings, 92);
  const bool chooses = settings.options.reduction == Reduction::either;
  const Scenario rows = chooses ? combined_as(again, Reduction::exact) : again;
  on_ranks(target, settings.shape.ranks, describe(settings), [&](World& world) {
    if (test::is_masked_out(first.round, world.rank())) return;
    require_orders(world, settings);
    require_settings(world, settings);
    const bool keeps = world.capabilities().handles;
    Exchange exchange(world, settings.shape, settings.options);
    Counter counter(world, exchange, first);
    HandleMemory handle(keeps ? exchange.layout().handle_bytes : 0);
    for (const Form form : {Form::split, Form::one_call}) {
      if (!keeps) {
        counter.round(first, form);
        continue;
      }
      counter.keep(first, handle, form);
      counter.replay(again, handle, form);
      counter.combine(again, handle, form);
      counter.combine(rows, handle, form);
      counter.combine(first, handle, form);
    }
  });
}

void of_order(const Target& target, RowOrder order) {
  const bool is_either = order == RowOrder::padded;
  with_handles(target, settings_for("mxfp8", is_either ? Reduction::either : Reduction::by_rank, "bf16", order));
  if (order != RowOrder::by_source && !is_either)
    with_handles(target, settings_for("fp8_block128", Reduction::exact, "fp8_block128", order));
}

void of_options(const Target& target) {
  ScenarioSettings settings = settings_for("nvfp4", Reduction::by_rank, "nvfp4", RowOrder::by_expert);
  settings.options.fused_shared_expert = true;
  with_handles(target, settings);
  settings = settings_for("bf16", Reduction::exact, "f32", RowOrder::by_expert);
  settings.options.skip_a2a = true;
  with_handles(target, settings);
}

// Nothing goes to a masked rank, and what names it is counted.
void of_masks(const Target& target) {
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::by_source}) {
    ScenarioSettings settings = settings_for("mxfp8", Reduction::by_rank, "f16", order);
    settings.options.mask = {false, true, false};
    with_handles(target, settings);
  }
}

// A dispatch by counts has a list and counts in its routing, and rows of no expert.
void of_counts(const Target& target) {
  ScenarioSettings settings = settings_for("mxfp8", Reduction::by_rank, "bf16", RowOrder::by_source);
  settings.by_counts = true;
  settings.weights = WeightForm::none;
  for (const bool has_mask : {false, true}) {
    if (has_mask) settings.options.mask = {false, true, false};
    const Scenario scenario = make_scenario(settings);
    on_ranks(target, settings.shape.ranks, describe(settings) + " by counts", [&](World& world) {
      if (test::is_masked_out(scenario.round, world.rank())) return;
      require_orders(world, settings);
      require_settings(world, settings);
      Exchange exchange(world, settings.shape, settings.options);
      Counter counter(world, exchange, scenario);
      for (const Form form : {Form::split, Form::one_call}) counter.round(scenario, form);
    });
  }
}

// Tokens with a NaN or an infinity in some blocks, in replays, too.
void non_finite(const Target& target) {
  for (const char* format : {"bf16", "fp8_block128", "mxfp4", "nvfp4"}) {
    ScenarioSettings settings = settings_for(format, Reduction::by_rank, "bf16", RowOrder::by_expert);
    Scenario scenario = make_scenario(settings);
    for (test::RankInput& in : scenario.round.ranks)
      for (int token = 0; token < in.num_tokens; ++token)
        for (const int column : {token * 7 % 160, token * 31 % 160}) {
          if (token % 3 == 0) continue;
          const std::uint16_t bits = token % 2 == 0 ? 0x7f80 : 0x7fc0;  // bf16: an infinity, a NaN
          std::memcpy(in.tokens.data() + (token * 160 + column) * 2, &bits, sizeof bits);
        }
    scenario = with_same_tokens(scenario);
    on_ranks(target, settings.shape.ranks, describe(settings) + " not finite", [&](World& world) {
      Exchange exchange(world, settings.shape, settings.options);
      Counter counter(world, exchange, scenario);
      for (const Form form : {Form::split, Form::one_call}) counter.round(scenario, form);
      if (!world.capabilities().handles) return;
      HandleMemory handle(exchange);
      counter.keep(scenario, handle, Form::one_call);
      counter.replay(scenario, handle, Form::split);
    });
  }
}

// How many threads may wait at the same time: each adds its own time.
std::uint64_t waiters_of(const World& world) { return world.capabilities().gpus ? std::uint64_t{1} << 20 : 1; }

// The waits of a rank's calls fit into its calls, by the statistics and by the outputs that they are added to. Rank 1
// is late, so that there are some.
void longest_waits(const Target& target) {
  ScenarioSettings settings = settings_for("bf16", Reduction::by_rank, "bf16", RowOrder::by_expert);
  const Scenario scenario = make_scenario(settings);
  using Clock = std::chrono::steady_clock;
  on_ranks(target, settings.shape.ranks, "waits are no longer than the calls", [&](World& world) {
    const bool has_outputs = world.capabilities().more_outputs;
    Exchange exchange(world, settings.shape, settings.options);
    const auto num_ranks = static_cast<std::size_t>(settings.shape.ranks);
    std::vector<std::int64_t> in_dispatch(num_ranks), in_combine(num_ranks);
    std::uint64_t passed = 0;
    for (const Form form : {Form::split, Form::one_call, Form::split}) {
      RankRound round(scenario, world.rank());
      if (has_outputs) {
        round.out.waited_ns = Tensor(in_dispatch.data(), DType::i64, {settings.shape.ranks});
        round.combine_out.waited_ns = Tensor(in_combine.data(), DType::i64, {settings.shape.ranks});
      }
      world.barrier();
      if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const Clock::time_point start = Clock::now();
      run_dispatch(exchange, round, form);
      run_combine(exchange, round, form);
      passed += static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - start).count());
      round.check_rows();
      round.check_tokens();
    }
    const auto expect_within = [&](const char* place, std::uint64_t waited) {
      if (waited > passed * waiters_of(world))
        throw Failure(world.rank(), place, "at most " + std::to_string(passed) + " ns, which the calls took",
                      std::to_string(waited));
    };
    const auto sum_of = [](const auto& each) {
      return std::accumulate(each.begin(), each.end(), std::uint64_t{0},
                             [](std::uint64_t sum, auto value) { return sum + static_cast<std::uint64_t>(value); });
    };
    expect_within("Stats::waited_ns of all ranks", sum_of(exchange.stats().waited_ns));
    expect_within("waited_ns of dispatches and combines", sum_of(in_dispatch) + sum_of(in_combine));
  });
}

}  // namespace

void add_statistics_cases(Cases& cases) {
  cases.push_back({"reports/statistics", "tokens, messages and bytes are counted, and can be read at any time", true,
                   read_at_any_time});
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::padded, RowOrder::by_source, RowOrder::in_place})
    cases.push_back({std::string("reports/statistics_") + to_string(order),
                     "what rounds, replays and combines with handles count, for each reduction", true,
                     [order](const Target& target) { of_order(target, order); }});
  cases.push_back({"reports/statistics_options", "the same with a shared expert and with skip_a2a", true, of_options});
  cases.push_back({"reports/statistics_masks", "the same without a rank", true, of_masks});
  cases.push_back({"reports/statistics_counts", "the same of dispatches by counts", true, of_counts});
  cases.push_back({"reports/statistics_not_finite", "blocks with a NaN or an infinity are counted", true, non_finite});
  cases.push_back({"reports/waits", "no rank has waited for longer than its calls took", true, longest_waits});
}

}  // namespace ferry::conformance
