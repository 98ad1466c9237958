// Cases over router weights that come late, with combine or with a dispatch that is given a handle; and over weights
// that combine sends home.
#include <stdexcept>

#include "conformance/cases/cases.h"
#include "conformance/rounds/handle_sequence.h"

namespace ferry::conformance {
namespace {

constexpr Shape kShape{3, 8, 4, 14, 96};
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
  const bool are_late = scenario.settings.weights_at == WeightsAt::combine;
  round.combine_in = combine_input_with(round, handle);
  if (!are_late) round.combine_in.topk_weights = {};
  run_combine(exchange, round, form);
  round.check_tokens();
}

// New weights come with a replay: its rows say them where they say any, and so does the handle that it leaves.
void new_weights(const Target& target, RowOrder order) {
  ScenarioSettings settings = settings_for("bf16", 40);
  settings.weights_at = WeightsAt::dispatch;
  settings.options.row_orders = {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};
  settings.row_orders = {order};
  const Scenario first = make_scenario(settings);
  const Scenario second = with_other_weights(first, 41);
  const Scenario third = with_other_weights(second, 42);
  on_ranks(target, kShape.ranks, "replays with new weights", [&](World& world) {
    require_settings(world, settings);
    require_orders(world, settings);
    Exchange exchange(world, kShape, settings.options);
    HandleMemory a(exchange), b(exchange), c(exchange);
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

// Values of rows come home to the (token, k) that they are of.
void returned(const Target& target) {
  for (const Shape& shape : kShapes)
    for (const char* routing : {"ragged", "no_tokens", "one_rank", "some_none"})
      for (const Reduction reduction : {Reduction::by_rank, Reduction::exact})
        for (const bool by_source : {false, true}) {
          if (by_source && reduction == Reduction::exact) continue;
          ScenarioSettings settings;
          settings.shape = shape;
          settings.options = options_for("mxfp8", reduction);
          settings.options.returns_weights = true;
          settings.options.expert_alignment = 4;
          settings.options.workers = 2;
          settings.options.fused_shared_expert = !by_source && shape.top_k == 4;
          settings.routing = routing;
          settings.seed = 51;
          settings.num_bias = 1;
          if (by_source) settings.options.row_orders = {RowOrder::by_source, RowOrder::by_expert, RowOrder::padded};
          if (by_source) settings.row_orders = {RowOrder::by_source};
          if (by_source && shape.top_k == 4)
            settings.row_orders = {RowOrder::by_source, RowOrder::padded, RowOrder::by_source, RowOrder::by_expert};
          settings.sum_order = reduction == Reduction::by_rank ? SumOrder::by_last_k : SumOrder::by_rank;
          settings.odd_ranks_return_none = shape.top_k == 22;
          run_scenario(target, settings, by_source ? Form::split : Form::one_call);
        }
}

void returned_and_late(const Target& target) {
  ScenarioSettings settings = settings_for("bf16", 52);
  settings.options.returns_weights = true;
  run_scenario(target, settings);
}

// With all else that may go with it: skip_a2a, rows without room, unreduced rows.
void returned_with(const Target& target) {
  ScenarioSettings settings = settings_for("bf16", 52);
  settings.options.returns_weights = true;
  settings.options.late_weights = false;
  settings.weights_at = WeightsAt::dispatch;
  settings.options.skip_a2a = true;
  run_scenario(target, settings);
  settings.options.skip_a2a = false;
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) {
    ScenarioSettings overflowing = settings;
    overflowing.options.reduction = reduction;
    overflowing.options.row_orders = kUsualRowOrders;
    overflowing.overflow = Overflow::expected;
    overflowing.room_percent = 40;
    run_scenario(target, overflowing);
    if (reduction == Reduction::exact) continue;
    overflowing.options.row_orders = {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded};
    overflowing.row_orders = {RowOrder::by_source, RowOrder::by_expert};
    run_scenario(target, overflowing);
  }
  settings = {};
  settings.shape = kShape;
  settings.options = options_for("bf16", Reduction::exact);
  settings.options.returns_weights = true;
  settings.unreduced = true;
  settings.weights = WeightForm::none;
  run_scenario(target, settings);
}

void returned_in_place(const Target& target) {
  ScenarioSettings settings = settings_for("bf16", 53);
  settings.options.returns_weights = true;
  settings.options.late_weights = false;
  settings.weights_at = WeightsAt::dispatch;
  settings.row_orders = {RowOrder::in_place};
  run_scenario(target, settings);
}

void returned_in_rounds(const Target& target) {
  std::vector<Scenario> rounds;
  for (const char* routing : {"ragged", "uniform", "empty_ranks", "one_rank"}) {
    ScenarioSettings settings;
    settings.shape = kShape;
    settings.options = options_for("bf16");
    settings.options.returns_weights = true;
    settings.routing = routing;
    settings.seed = 54 + rounds.size();
    settings.odd_ranks_return_none = rounds.size() % 2 == 1;
    rounds.push_back(make_scenario(settings));
  }
  on_ranks(target, kShape.ranks, "rounds whose weights come home", [&](World& world) {
    require_settings(world, rounds[0].settings);
    Exchange exchange(world, kShape, rounds[0].settings.options);
    for (std::size_t i = 0; i < 24; ++i) {
      RankRound round(rounds[i * 7 % rounds.size()], world.rank());
      const Form form = i % 2 == 0 ? Form::split : Form::one_call;
      run_dispatch(exchange, round, form);
      if (i % 6 == 4) round.combine_out.topk_weights = {};
      if (i % 5 == 2) {
        exchange.combine_async(round.combine_in);
        continue;
      }
      run_combine(exchange, round, form);
      if (i % 6 != 4) round.check_tokens();
    }
  });
}

void returned_refused(const Target& target) {
  ScenarioSettings settings;
  settings.shape = kShape;
  settings.options = options_for("bf16");
  settings.options.returns_weights = true;
  settings.seed = 55;
  settings.options.expert_alignment = 4;
  const Scenario scenario = make_scenario(settings);
  on_ranks(target, kShape.ranks, "weights that do not go home", [&](World& world) {
    require_settings(world, settings);
    const int rank = world.rank();
    Exchange exchange(world, kShape, settings.options);
    ExchangeOptions without = settings.options;
    without.returns_weights = false;
    Exchange other(world, kShape, without);
    RankRound round(scenario, rank);
    run_dispatch(exchange, round, Form::one_call);
    CombineInput in = round.combine_in;
    const auto expect = [&](Exchange& of, const char* what, const std::vector<std::string>& fragments,
                            const CombineOutput& out) {
      expect_error(rank, what, ErrorKind::invalid_argument, fragments, [&] { of.combine(in, out); });
    };
    in.row_topk_weights.dtype = DType::bf16;
    expect(exchange, "bf16 row weights", {"row_topk_weights", "bf16", "f32"}, round.combine_out);
    in.row_topk_weights.dtype = DType::f32;
    in.row_topk_weights.shape[0] = 1;
    expect(exchange, "too few row weights", {"row_topk_weights", "1"}, round.combine_out);
    in.row_topk_weights = ConstTensor(round.combine_in.row_topk_weights.data, DType::f32, {1, 4});
    expect(exchange, "row weights of another order", {"row_topk_weights", "[1, 4]"}, round.combine_out);
    in = round.combine_in;
    CombineOutput out = round.combine_out;
    out.topk_weights.shape[1] = 3;
    expect(exchange, "an output of another shape", {"topk_weights", "3", "4"}, out);
    run_combine(exchange, round, Form::split);
    round.check_tokens();
    RankRound second(scenario, rank);
    run_dispatch(other, second, Form::one_call);
    out = second.combine_out;
    out.topk_weights = {};
    expect(other, "row weights without the option", {"row_topk_weights", "returns_weights"}, out);
    in.row_topk_weights = {};
    expect(other, "weights home without the option", {"topk_weights", "returns_weights"}, second.combine_out);
    other.combine(in, out);
  });
}

// Where exchanges of a world cannot do it, they say so when they are made.
void not_there(const Target& target) {
  const ScenarioSettings settings = settings_for("bf16", 46);
  on_ranks(target, kShape.ranks, "what a world cannot do", [&](World& world) {
    const WorldCapabilities can = world.capabilities();
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
  cases.push_back({"weights/late_in_rounds", "the same in rounds of which some are given up", true, late_in_rounds});
  cases.push_back({"weights/late_with_handle", "the same with a handle", true, late_with_handle});
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place})
    cases.push_back({std::string("weights/replayed_") + to_string(order), "replays that are given new weights", true,
                     [order](const Target& target) { new_weights(target, order); }});
  cases.push_back({"weights/late_refused", "late weights that a combine cannot use", true, refused});
  cases.push_back({"weights/returned", "values of rows that come home to their token and k", true, returned});
  cases.push_back({"weights/returned_and_late", "the same with weights that come late", true, returned_and_late});
  cases.push_back({"weights/returned_with", "the same with what else may be asked for", true, returned_with});
  cases.push_back({"weights/returned_in_place", "the same where rows stay in their slots", true, returned_in_place});
  cases.push_back(
      {"weights/returned_in_rounds", "the same in rounds of which some are given up", true, returned_in_rounds});
  cases.push_back({"weights/returned_refused", "values that cannot go home", true, returned_refused});
  cases.push_back({"weights/not_there", "worlds without late or returned weights say so", true, not_there});
}

}  // namespace ferry::conformance
