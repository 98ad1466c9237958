// Cases in which each rank has its own: options that may differ between ranks, types, strides, outputs and orders.
#include "conformance/cases/cases.h"
#include "conformance/rounds/handle_sequence.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {
namespace {

ScenarioSettings settings_for(const char* format, Reduction reduction) {
  ScenarioSettings settings;
  settings.shape = {.ranks = 3, .experts = 8, .top_k = 4, .max_tokens = 14, .hidden = 96};
  settings.options = options_for(format, reduction);
  settings.row_orders = {RowOrder::padded, RowOrder::by_expert, RowOrder::in_place};
  settings.routing = "ragged";
  settings.seed = 81;
  settings.each_its_own = true;
  return settings;
}

// A round, and where the world has handles, one that leaves a handle, a replay and a combine.
void rounds_of(const Target& target, const ScenarioSettings& wanted) {
  const ScenarioSettings settings = fitted(target, wanted);
  const Scenario first = make_scenario(settings), again = with_other_tokens(first, settings, 82);
  on_ranks(target, settings.shape.ranks, describe(settings), [&](World& world) {
    const int rank = world.rank();
    require_orders(world, settings);
    ScenarioSettings own = settings_at(settings, rank);
    require_settings(world, settings);
    if (!world.capabilities().handles) own.options.short_handles = false;
    Exchange exchange(world, settings.shape, exchange_options(own));
    for (const bool is_odd : {false, true})
      run_round(exchange, first, (rank % 2 == 1) == is_odd ? Form::split : Form::one_call);
    if (!world.capabilities().handles) return;
    HandleMemory handle(exchange, first);
    RankRound round(first, rank);
    round.out.handle = handle.tensor();
    run_dispatch(exchange, round, rank % 2 == 1 ? Form::split : Form::one_call);
    round.check_rows();
    RankRound replay(again, rank);
    replay.in = input_with(replay, handle);
    run_dispatch(exchange, replay, rank % 2 == 1 ? Form::one_call : Form::split);
    replay.check_rows();
    replay.combine_in = combine_input_with(replay, handle);
    run_combine(exchange, replay, rank % 2 == 1 ? Form::split : Form::one_call);
    replay.check_tokens();
  });
}

void of_types(const Target& target) {
  ScenarioSettings settings = settings_for("mxfp8", Reduction::by_rank);
  rounds_of(target, settings);
  settings.encoded = Encoded::odd_ranks;
  settings.weight_dtype = DType::bf16;
  rounds_of(target, settings);
  rounds_of(target, settings_for("bf16", Reduction::exact));
}

// One rank has room for a part of its rows, and one asks for all outputs.
void of_outputs(const Target& target) {
  ScenarioSettings settings = settings_for("fp8_block128", Reduction::by_rank);
  settings.options.row_orders = {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};
  settings.more_outputs = true;
  for (const RowOrder first : {RowOrder::by_source, RowOrder::in_place})
    for (const RowOrder last : {RowOrder::by_source, RowOrder::by_expert}) {
      settings.row_orders = {first, RowOrder::padded, last};
      run_scenario(target, settings, last == RowOrder::by_source ? Form::split : Form::one_call);
    }
  settings.overflow = Overflow::expected;
  settings.room_percent = 60;
  run_scenario(target, settings);
}

}  // namespace

void add_own_cases(Cases& cases) {
  cases.push_back({"own/types", "ranks that differ in deadlines, workers, types, strides and weights", true, of_types});
  cases.push_back({"own/outputs", "ranks that differ in their outputs and in their room", true, of_outputs});
}

}  // namespace ferry::conformance
