// Cases over weights that combine sends home.
#include "conformance/cases/cases.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {
namespace {

constexpr Shape kShape{.ranks = 3, .experts = 8, .top_k = 4, .max_tokens = 14, .hidden = 96};
constexpr Shape kShapes[] = {kShape, {2, 7, 1, 9, 32}, {4, 30, 22, 5, 2880}};

ScenarioSettings late_settings(std::uint64_t seed) {
  ScenarioSettings settings;
  settings.shape = kShape;
  settings.options = options_for("bf16");
  settings.options.late_weights = true;
  settings.options.expert_alignment = 4;
  settings.routing = "ragged";
  settings.seed = seed;
  settings.weights_at = WeightsAt::combine;
  return settings;
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
  ScenarioSettings settings = late_settings(52);
  settings.options.returns_weights = true;
  run_scenario(target, settings);
}

// With all else that may go with it: skip_a2a, rows without room, unreduced rows.
void returned_with(const Target& target) {
  ScenarioSettings settings = late_settings(52);
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
  ScenarioSettings settings = late_settings(53);
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

}  // namespace

void add_returned_weight_cases(Cases& cases) {
  cases.push_back({"weights/returned", "values of rows that come home to their token and k", true, returned});
  cases.push_back({"weights/returned_and_late", "the same with weights that come late", true, returned_and_late});
  cases.push_back({"weights/returned_with", "the same with what else may be asked for", true, returned_with});
  cases.push_back({"weights/returned_in_place", "the same where rows stay in their slots", true, returned_in_place});
  cases.push_back(
      {"weights/returned_in_rounds", "the same in rounds of which some are given up", true, returned_in_rounds});
  cases.push_back({"weights/returned_refused", "values that cannot go home", true, returned_refused});
}

}  // namespace ferry::conformance
