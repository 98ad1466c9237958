// Cases over router weights that come late, with combine or with a dispatch that is given a handle.
#include <stdexcept>

#include "conformance/cases/cases.h"
#include "conformance/rounds/handle_sequence.h"

namespace ferry::conformance {
namespace {

constexpr Shape kShape{.ranks = 3, .experts = 8, .top_k = 4, .max_tokens = 14, .hidden = 96};
constexpr Shape kShapes[] = {kShape, {2, 7, 1, 9, 32}, {4, 30, 22, 5, 2880}};

ScenarioSettings settings_for(const char* format, std::uint64_t seed) {
  ScenarioSettings settings;
  settings.shape = kShape;
  settings.options = options_for(format);
  settings.options.late_weights = true;
  settings.options.expert_alignment = 4;
  settings.routing = "ragged";
  settings.seed = seed;
  settings.weights_at = WeightsAt::combine;
  return settings;
}

// Late weights give the same bytes as weights at dispatch, whichever rank gives them in which call.
void late(const Target& target) {
  for (const Shape& shape : kShapes)
    for (const char* routing : {"ragged", "no_tokens", "one_rank", "empty_ranks", "some_none"})
      for (const WeightsAt at : {WeightsAt::combine, WeightsAt::either, WeightsAt::dispatch}) {
        ScenarioSettings settings = settings_for("mxfp8", 31);
        settings.shape = shape;
        settings.routing = routing;
        settings.weights_at = at;
        settings.weights = at == WeightsAt::either ? WeightForm::hook : WeightForm::array;
        settings.weight_dtype = at == WeightsAt::combine ? DType::bf16 : DType::f32;
        settings.options.workers = 2;
        settings.options.fused_shared_expert = shape.top_k == 4;
        run_scenario(target, settings, at == WeightsAt::either ? Form::one_call : Form::split);
      }
}

void late_in_orders(const Target& target) {
  ScenarioSettings settings = settings_for("bf16", 33);
  settings.options.skip_a2a = true;
  run_scenario(target, settings);
  for (const RowOrder order : {RowOrder::padded, RowOrder::in_place}) {
    settings = settings_for("fp8_block128", 32);
    settings.row_orders = {order};
    run_scenario(target, settings);
  }
}

// Rounds follow each other, some without their combine, or with the first half of it.
void late_in_rounds(const Target& target) {
  std::vector<Scenario> rounds;
  for (const char* routing : {"ragged", "uniform", "empty_ranks", "one_rank"}) {
    ScenarioSettings settings = settings_for("bf16", 34 + rounds.size());
    settings.routing = routing;
    settings.weights_at = rounds.size() % 2 == 0 ? WeightsAt::combine : WeightsAt::either;
    rounds.push_back(make_scenario(settings));
  }
  on_ranks(target, kShape.ranks, "rounds with late weights", [&](World& world) {
    require_settings(world, rounds[0].settings);
    Exchange exchange(world, kShape, rounds[0].settings.options);
    for (std::size_t i = 0; i < 24; ++i) {
      RankRound round(rounds[i * 7 % rounds.size()], world.rank());
      const Form form = i % 2 == 0 ? Form::split : Form::one_call;
      run_dispatch(exchange, round, form);
      round.check_rows();
      if (i % 5 == 3) continue;
      if (i % 5 == 2) {
        exchange.combine_async(round.combine_in);
        continue;
      }
      run_combine(exchange, round, form);
      round.check_tokens();
    }
  });
}

// The dispatch of `scenario` by a handle, where odd ranks give its weights anew; the handle that it leaves has them.
void replay(Exchange& exchange, const Scenario& scenario, HandleMemory& handle, HandleMemory& left, Form form) {
  RankRound round(scenario, exchange.rank());
  const ConstTensor weights = round.in.topk_weights;
  round.in = input_with(round, handle);
  if (exchange.rank() % 2 == 1) round.in.topk_weights = weights;
  round.out.handle = left.tensor();
  run_dispatch(exchange, round, form);
  round.check_rows();
}

void combine(Exchange& exchange, const Scenario& scenario, HandleMemory& handle, Form form) {
  RankRound round(scenario, exchange.rank());
  round.combine_in.src_info = {};
  round.combine_in = combine_input_with(round, handle);
  run_combine(exchange, round, form);
  round.check_tokens();
}

// New weights come with a replay. Rows that have weights have the new ones, and so has the handle that the replay
// leaves.
void new_weights(const Target& target, RowOrder order) {
  ScenarioSettings settings = settings_for("bf16", 40);
  settings.weights_at = WeightsAt::dispatch;
  settings.options.row_orders = {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};
  settings.row_orders = {order};
  settings.options.short_handles = order == RowOrder::by_expert || order == RowOrder::by_source;
  const Scenario first = make_scenario(settings);
  const Scenario second = with_other_weights(first, 41);
  const Scenario third = with_other_weights(second, 42);
  on_ranks(target, kShape.ranks, "replays with new weights", [&](World& world) {
    require_settings(world, settings);
    require_orders(world, settings);
    Exchange exchange(world, kShape, settings.options);
    HandleMemory a(exchange, first), b(exchange, first), c(exchange, first);
    for (const Form form : {Form::split, Form::one_call}) {
      RankRound round(first, world.rank());
      round.out.handle = a.tensor();
      run_dispatch(exchange, round, form);
      round.check_rows();
      replay(exchange, second, a, b, form);
      combine(exchange, second, b, form);
      replay(exchange, third, b, c, form);
      combine(exchange, third, c, form);
      combine(exchange, first, a, form);
      combine(exchange, second, b, form);
      replay(exchange, second, c, c, form);  // in the handle's own place
      combine(exchange, second, c, form);
    }
  });
}

// Rows of each rank in an order of its own. Ranks whose rows are by_source give their weights to dispatch; of weights
// that come late their row_topk_weights say 1, and so do row_weights of the others.
ScenarioSettings in_mixed_orders(WeightsAt at, std::vector<RowOrder> orders) {
  ScenarioSettings settings = settings_for("mxfp8", 47);
  settings.options.row_orders = {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};
  settings.row_orders = std::move(orders);
  settings.weights_at = at;
  settings.more_outputs = true;
  return settings;
}

void late_in_mixed_orders(const Target& target) {
  using enum RowOrder;
  const std::vector<RowOrder> mixes[] = {
      {by_source, by_expert, padded}, {padded, by_source, by_source}, {by_expert, in_place, by_source}};
  for (const std::vector<RowOrder>& orders : mixes)
    for (const WeightsAt at : {WeightsAt::combine, WeightsAt::either}) {
      ScenarioSettings settings = in_mixed_orders(at, orders);
      run_scenario(target, settings, Form::split);
      settings.weights = WeightForm::hook;
      settings.options.returns_weights = true;
      run_scenario(target, settings, Form::one_call);
      settings.weights = WeightForm::array;
      settings.overflow = Overflow::expected;
      settings.room_percent = 60;
      settings.expert_stride = 5;
      run_scenario(target, settings, Form::split);
    }
}

// With handles: late weights of odd ranks in each combine, and in replays, whose rows then say them.
void late_in_mixed_orders_with_handle(const Target& target) {
  using enum RowOrder;
  const ScenarioSettings settings = in_mixed_orders(WeightsAt::either, {by_source, padded, by_source});
  const Scenario first = make_scenario(settings);
  const Scenario second = with_other_weights(first, 48);
  const Scenario again = with_other_tokens(first, settings, 49);
  Scenario anew = second;
  anew.settings.weights_at = WeightsAt::dispatch;
  anew = with_other_weights(anew, 50);
  on_ranks(target, kShape.ranks, "late weights in mixed orders with a handle", [&](World& world) {
    require_settings(world, settings);
    require_orders(world, settings);
    Exchange exchange(world, kShape, settings.options);
    HandleMemory a(exchange), b(exchange);
    RankRound round(first, world.rank());
    round.out.handle = a.tensor();
    run_dispatch(exchange, round, Form::one_call);
    round.check_rows();
    for (const Form form : {Form::split, Form::one_call}) {
      combine(exchange, second, a, form);
      RankRound replayed(again, world.rank());
      replayed.in = input_with(replayed, a);
      run_dispatch(exchange, replayed, form);
      replayed.check_rows();
      combine(exchange, again, a, form);
      replay(exchange, anew, a, b, form);
      combine(exchange, anew, b, form);
      combine(exchange, first, a, form);
    }
  });
}

// A hook that throws: nothing has moved, and the call may be made again.
void throw_in_combine(Exchange& exchange, const RankRound& round) {
  CombineInput bad{.rows = round.combine_in.rows, .handle = round.out.handle};
  bad.router_weight = [](void*, int, int) -> float { throw std::range_error("no weight"); };
  try {
    exchange.combine_async(bad);
  } catch (const std::range_error&) {
    return;
  }
  throw Failure(exchange.rank(), "combine_async", "what the hook threw", "nothing");
}

// A handle whose dispatch was given no weights takes some in each combine.
void late_with_handle(const Target& target) {
  const ScenarioSettings settings = settings_for("bf16", 43);
  const Scenario first = make_scenario(settings);
  const Scenario second = with_other_weights(first, 44);
  on_ranks(target, kShape.ranks, "late weights with a handle", [&](World& world) {
    require_settings(world, settings);
    Exchange exchange(world, kShape, settings.options);
    HandleMemory handle(exchange);
    RankRound round(first, world.rank());
    round.out.handle = handle.tensor();
    run_dispatch(exchange, round, Form::one_call);
    if (target.hooks_may_throw && world.rank() == 1) throw_in_combine(exchange, round);
    for (const Form form : {Form::split, Form::one_call}) {
      combine(exchange, first, handle, form);
      combine(exchange, second, handle, form);
    }
    run_combine(exchange, round, Form::split);
    round.check_tokens();
  });
}

void refused(const Target& target) {
  ScenarioSettings settings = settings_for("bf16", 45);
  settings.options.row_orders = {RowOrder::by_expert, RowOrder::by_source};
  const Scenario late = make_scenario(settings);
  settings.weights_at = WeightsAt::dispatch;
  const Scenario with_dispatch = make_scenario(settings);
  settings.row_orders = {RowOrder::by_source};
  settings.weights = WeightForm::none;
  const Scenario by_source = make_scenario(settings);
  on_ranks(target, kShape.ranks, "late weights that are refused", [&](World& world) {
    require_settings(world, settings);
    require_orders(world, settings);
    const int rank = world.rank();
    Exchange exchange(world, kShape, settings.options);
    const auto refuse = [&](const Scenario& scenario, const char* what, const std::vector<std::string>& fragments,
                            const std::function<void(CombineInput&)>& spoil) {
      RankRound round(scenario, rank);
      RankRound other(late, rank);
      run_dispatch(exchange, round, Form::one_call);
      CombineInput in = round.combine_in;
      in.topk_weights = other.combine_in.topk_weights;
      spoil(in);
      expect_error(rank, what, ErrorKind::invalid_argument, fragments,
                   [&] { exchange.combine(in, round.combine_out); });
      run_combine(exchange, round, Form::split);
      round.check_tokens();
    };
    refuse(with_dispatch, "weights twice", {"topk_weights", "dispatch", "once"}, [](CombineInput&) {});
    refuse(late, "weights that nobody applies", {"topk_weights", "apply_weights"},
           [](CombineInput& in) { in.apply_weights = false; });
    refuse(late, "weights of another shape", {"topk_weights", "3"},
           [](CombineInput& in) { --in.topk_weights.shape[1]; });
    refuse(by_source, "weights for sums of the caller's", {"topk_weights", "by_source"}, [](CombineInput&) {});
    ExchangeOptions options = settings.options;
    options.reduction = Reduction::exact;
    options.row_orders = kUsualRowOrders;
    expect_error(rank, "late weights with exact", ErrorKind::invalid_argument, {"late_weights", "exact"},
                 [&] { const Exchange exact(world, kShape, options); });
  });
}

// Where exchanges of a world cannot do it, they say so when they are made.
void not_there(const Target& target) {
  const ScenarioSettings settings = settings_for("bf16", 46);
  on_ranks(target, kShape.ranks, "what a world cannot do", [&](World& world) {
    const WorldCapabilities can = world.capabilities();
    if (can.late_weights && can.returned_weights) throw Skipped("the exchanges of this world do all of it");
    if (!can.late_weights)
      expect_error(world.rank(), "late_weights", ErrorKind::unsupported, {"late_weights"},
                   [&] { const Exchange exchange(world, kShape, settings.options); });
    ExchangeOptions returning = options_for("bf16");
    returning.returns_weights = true;
    if (!can.returned_weights)
      expect_error(world.rank(), "returns_weights", ErrorKind::unsupported, {"returns_weights"},
                   [&] { const Exchange exchange(world, kShape, returning); });
  });
}

}  // namespace

void add_weight_cases(Cases& cases) {
  cases.push_back({"weights/late", "weights given to combine where expert ranks sum", true, late});
  cases.push_back({"weights/late_in_orders", "the same with rows in other orders", true, late_in_orders});
  cases.push_back({"weights/late_in_mixed_orders", "late weights, where some ranks have rows by_source", true,
                   late_in_mixed_orders});
  cases.push_back(
      {"weights/late_in_mixed_orders_with_handle", "the same with a handle", true, late_in_mixed_orders_with_handle});
  cases.push_back({"weights/late_in_rounds", "the same in rounds of which some are given up", true, late_in_rounds});
  cases.push_back({"weights/late_with_handle", "the same with a handle", true, late_with_handle});
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place})
    cases.push_back({std::string("weights/replayed_") + to_string(order), "replays that are given new weights", true,
                     [order](const Target& target) { new_weights(target, order); }});
  cases.push_back({"weights/late_refused", "late weights that a combine cannot use", true, refused});
  cases.push_back({"weights/not_there", "worlds without late or returned weights say so", true, not_there});
}

}  // namespace ferry::conformance
