// Cases over more tokens than a dispatch can take: all ranks refuse it, and go on.
#include <algorithm>

#include "conformance/cases/cases.h"
#include "conformance/rounds/refused_dispatch.h"

namespace ferry::conformance {
namespace {

ScenarioSettings settings_for(const std::vector<RowOrder>& orders) {
  ScenarioSettings settings;
  settings.shape = {.ranks = 3, .experts = 10, .top_k = 4, .max_tokens = 12, .hidden = 96};
  settings.options = options_for("mxfp8");
  settings.options.workers = 2;
  if (std::ranges::find(orders, RowOrder::by_source) != orders.end())
    settings.options.row_orders = {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};
  settings.row_orders = orders;
  settings.routing = "ragged";
  settings.seed = 91;
  return settings;
}

void refused_round(Exchange& exchange, const Scenario& scenario, int odd, RefusedBy call) {
  const int rank = exchange.rank(), excess = 1 + odd;
  const ExcessTokens tokens(scenario.settings.shape, excess);
  RankRound round(scenario, rank);
  if (rank == odd || (odd == 1 && rank == 2)) tokens.give(round);
  run_refused_dispatch(exchange, round, call, odd, excess);
  expect_error(rank, "a combine of a refused dispatch", ErrorKind::out_of_order, {"combine"},
               [&] { exchange.combine(round.combine_in, round.combine_out); });
}

// More tokens than max_tokens on one rank, or on two: all ranks refuse that dispatch, whichever call finds it out, and
// go on. Where the caller must ask, outputs are for the worst case, since some ranks do not.
void too_many_tokens(const Target& target, const ScenarioSettings& settings) {
  const Scenario scenario = make_scenario(settings);
  on_ranks(target, settings.shape.ranks, describe(settings), [&](World& world) {
    if (!world.capabilities().asked_counts) throw Skipped("the exchanges of this world do not tell the host what came");
    if (settings.by_counts && !world.capabilities().counts_dispatch) throw Skipped("no dispatch by counts");
    require_orders(world, settings);
    if (test::is_masked_out(scenario.round, world.rank())) return;
    Exchange exchange(world, settings.shape, settings.options);
    for (int odd = 0; odd < 3; ++odd)
      for (int turn = 0; turn < kRefusedBy; ++turn) {
        refused_round(exchange, scenario, odd, static_cast<RefusedBy>((world.rank() + turn) % kRefusedBy));
        run_round(exchange, scenario, turn == 1 ? Form::one_call : Form::split);
      }
  });
}

}  // namespace

void add_excess_cases(Cases& cases) {
  const auto add = [&](const std::string& name, const char* what, const ScenarioSettings& settings) {
    cases.push_back(
        {"sizes/too_many_tokens" + name, what, true, [=](const Target& target) { too_many_tokens(target, settings); }});
  };
  ScenarioSettings settings = settings_for({RowOrder::by_expert});
  add("", "more tokens than max_tokens on one rank, on two", settings);
  for (const RowOrder order : {RowOrder::by_source, RowOrder::padded, RowOrder::in_place})
    add(std::string("_") + to_string(order), "the same in another order of rows", settings_for({order}));
  add("_mixed", "the same where each rank has its own order",
      settings_for({RowOrder::by_expert, RowOrder::by_source, RowOrder::padded}));
  settings.options.fused_shared_expert = true;
  add("_shared", "the same with a fused shared expert", settings);
  settings.options.fused_shared_expert = false;
  settings.shape.ranks = 4;
  settings.shape.experts = 12;
  settings.options.mask = {false, false, false, true};
  add("_masked", "the same where a rank is masked", settings);
  settings = settings_for({RowOrder::by_source});
  settings.by_counts = true;
  settings.weights = WeightForm::none;
  add("_by_counts", "the same in dispatches by counts", settings);
}

}  // namespace ferry::conformance
