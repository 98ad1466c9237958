// Cases over rows for which the outputs of a dispatch have no room.
#include "conformance/cases/cases.h"
#include "conformance/rounds/handle_sequence.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {
namespace {

constexpr RowOrders kAllOrders{RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};

// Outputs with room for a part of the rows.
ScenarioSettings overflowing(const char* format, RowOrder order, const char* routing = "ragged") {
  ScenarioSettings settings;
  settings.shape = {.ranks = 3, .experts = 8, .top_k = 4, .max_tokens = 14, .hidden = 96};
  settings.options = options_for(format);
  if (order == RowOrder::by_source) settings.options.row_orders = kAllOrders;
  settings.row_orders = {order};
  settings.routing = routing;
  settings.seed = 61;
  settings.more_outputs = true;
  settings.overflow = Overflow::expected;
  settings.room_percent = 60;
  settings.spare_rows = 0;
  if (order == RowOrder::padded) settings.expert_stride = 3;
  return settings;
}

// No tokens, none of some ranks, all to one rank or expert, no experts, one k and many, experts that do not divide.
void every_routing(const Target& target, RowOrder order) {
  for (const test::RoutingCase& routing : test::routing_cases())
    for (const Shape& shape : {Shape{3, 11, 4, 20, 32}, Shape{4, 6, 1, 40, 32}, Shape{3, 25, 22, 5, 32}}) {
      ScenarioSettings settings = overflowing("mxfp8", order, routing.name);
      settings.shape = shape;
      run_scenario(target, settings, Form::one_call);
    }
}

void wide_rows(const Target& target, RowOrder order) {
  for (const char* format : {"bf16", "fp8_block128_ue8m0", "nvfp4"}) {
    ScenarioSettings settings = overflowing(format, order);
    settings.shape = {.ranks = 2, .experts = 9, .top_k = 4, .max_tokens = 16, .hidden = 2880};
    settings.options.workers = 2;
    run_scenario(target, settings);
  }
}

// Every format and reduction, capacities from none to more than enough.
void every_format(const Target& target, RowOrder order) {
  for (const AnyFormat& format : all_formats())
    for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) {
      if (order == RowOrder::by_source && reduction == Reduction::exact) continue;
      for (const int percent : {0, 35, 99, 100, 130}) {
        ScenarioSettings settings = overflowing(format.name(), order);
        settings.options.reduction = reduction;
        settings.room_percent = percent;
        if (order == RowOrder::padded) settings.expert_stride = 1 + percent / 5;
        settings.options.expert_alignment = percent == 35 ? 16 : 0;
        settings.options.tiled_scales = format.name() == std::string("mxfp8");
        settings.scale_form = percent == 99 ? ScaleForm::columns : ScaleForm::none;
        settings.zero_padding = percent == 35 && order != RowOrder::in_place;
        settings.row_dtype = percent == 99 ? DType::f32 : DType::bf16;
        settings.unreduced = reduction == Reduction::exact && percent == 35;
        if (settings.unreduced) settings.weights = WeightForm::none;
        run_scenario(target, settings, percent == 35 ? Form::split : Form::one_call);
      }
    }
}

// Results in other formats; too little room on some ranks only; several rounds of one exchange.
void mixed(const Target& target) {
  std::vector<Scenario> rounds;
  for (const char* results : {"bf16", "fp8_block128"})
    for (const int percent : {50, 100}) {
      ScenarioSettings settings = overflowing("fp8_block128", RowOrder::by_source);
      settings.row_orders = {RowOrder::by_source, RowOrder::in_place, RowOrder::padded, RowOrder::by_expert};
      settings.shape.ranks = 4;
      settings.options.result_format = format_named(results);
      settings.room_percent = percent;
      settings.seed += rounds.size();
      rounds.push_back(make_scenario(settings));
    }
  for (const Scenario& scenario : rounds)
    on_ranks(target, 4, describe(scenario.settings), [&](World& world) {
      require_orders(world, scenario.settings);
      Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
      for (const Form form : {Form::split, Form::one_call, Form::split}) run_round(exchange, scenario, form);
    });
}

void shared_expert(const Target& target) {
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::padded}) {
    ScenarioSettings settings = overflowing("fp8_block128", order);
    settings.options.fused_shared_expert = true;
    settings.room_percent = 70;
    settings.shape = {.ranks = 3, .experts = 8, .top_k = 4, .max_tokens = 6, .hidden = 96};
    settings.routing = "uniform";
    settings.expert_stride = 6;
    run_scenario(target, settings);
  }
  // Room for what comes is enough: it need not hold max_tokens.
  ScenarioSettings one_token = overflowing("fp8_block128", RowOrder::by_expert, "one_token");
  one_token.options.fused_shared_expert = true;
  one_token.room_percent = 100;
  one_token.shape.max_tokens = 200;
  run_scenario(target, one_token);
  // Aligned groups, the first one among them, end past the room.
  ScenarioSettings aligned = overflowing("mxfp8", RowOrder::by_expert, "one_token");
  aligned.options.fused_shared_expert = true;
  aligned.options.tiled_scales = true;
  aligned.options.expert_alignment = 16;
  for (const int percent : {7, 20, 50}) {
    aligned.room_percent = percent;
    run_scenario(target, aligned);
  }
}

// A replay, which leaves a handle if `left` is given, and a combine: of that handle, or of the one that was given.
void replay(Exchange& exchange, const Scenario& scenario, HandleMemory& handle, HandleMemory* left, Form form) {
  RankRound round(scenario, exchange.rank());
  round.in = input_with(round, handle);
  round.in.overflow = scenario.settings.overflow;
  if (left != nullptr) round.out.handle = left->tensor();
  run_dispatch(exchange, round, form);
  round.check_rows();
  if (left == nullptr && scenario.settings.room_percent != 60) return;  // the handle has another room
  round.combine_in = combine_input_with(round, left != nullptr ? *left : handle);
  run_combine(exchange, round, form);
  round.check_tokens();
}

// A handle of a dispatch with too little room; replays of it with the same room, less, and enough. Each replay leaves a
// handle, in memory of its own or over the first one. Combines with all of these handles.
void handles_of(const Target& target, ScenarioSettings settings) {
  settings.expert_stride = 0;
  const Scenario first = make_scenario(settings), second = with_other_tokens(first, settings, 8);
  settings.room_percent = 30;
  const Scenario less = with_other_tokens(first, settings, 9);
  settings.room_percent = 100;
  settings.overflow = Overflow::refused;
  const Scenario enough = with_other_tokens(first, settings, 10);
  on_ranks(target, settings.shape.ranks, describe(first.settings), [&](World& world) {
    if (!world.capabilities().handles) throw Skipped("the exchanges of this world have no handles");
    require_orders(world, first.settings);
    require_settings(world, first.settings);
    Exchange exchange(world, settings.shape, settings.options);
    HandleMemory handle(exchange, first), other(exchange, first);
    RankRound round(first, world.rank());
    round.out.handle = handle.tensor();
    if (!world.capabilities().overflow_handles)
      return expect_error(world.rank(), "a handle of rows that may overflow", ErrorKind::unsupported,
                          {"handle", "overflow is expected"}, [&] { exchange.dispatch(round.in, round.out); });
    run_dispatch(exchange, round, Form::one_call);
    round.check_rows();
    run_combine(exchange, round, Form::split);
    round.check_tokens();
    for (const Form form : {Form::split, Form::one_call}) {
      replay(exchange, second, handle, nullptr, form);
      replay(exchange, enough, handle, &other, form);
      replay(exchange, less, other, &other, form);
      replay(exchange, less, handle, nullptr, form);
      run_round(exchange, enough, form);
      replay(exchange, second, handle, &handle, form);
    }
  });
}

void handles(const Target& target, RowOrder order) { handles_of(target, overflowing("fp8_block128", order)); }

// The same where weights go home with the results, each expert's row by itself if the order allows it.
void handles_home(const Target& target, RowOrder order) {
  ScenarioSettings settings = overflowing("bf16", order);
  settings.options.returns_weights = settings.options.short_handles = true;
  if (order != RowOrder::by_source) settings.options.reduction = Reduction::exact;
  handles_of(target, settings);
}

// The same where weights may come with the combine.
void handles_late(const Target& target, RowOrder order) {
  ScenarioSettings settings = overflowing("bf16", order);
  settings.options.returns_weights = settings.options.late_weights = settings.options.short_handles = true;
  settings.weights_at = WeightsAt::combine;
  handles_of(target, settings);
}

// check() tells once, unless the call expects it; a dispatch in which all fits says nothing.
void told_once(const Target& target) {
  ScenarioSettings settings = overflowing("bf16", RowOrder::by_expert, "uniform");
  settings.overflow = Overflow::reported;
  const Scenario scenario = make_scenario(settings);
  on_ranks(target, settings.shape.ranks, describe(settings), [&](World& world) {
    require_orders(world, settings);
    Exchange exchange(world, settings.shape, settings.options);
    for (int again = 0; again < 2; ++again) {
      run_round(exchange, scenario, Form::split);
      expect_error(world.rank(), "check() after rows overflowed", ErrorKind::invalid_argument,
                   {"1 dispatch had", "did not fit", "row_capacity is", "Overflow::expected"},
                   [&] { exchange.check(); });
      exchange.check();
    }
    for (int dispatch = 0; dispatch < 3; ++dispatch) run_round(exchange, scenario, Form::one_call);
    expect_error(world.rank(), "check() after three of them", ErrorKind::invalid_argument, {"3 dispatches had"},
                 [&] { exchange.check(); });
    RankRound expected(scenario, world.rank());
    expected.in.overflow = Overflow::expected;
    run_dispatch(exchange, expected, Form::one_call);
    exchange.check();
    ScenarioSettings fits = settings;
    fits.room_percent = 100;
    run_round(exchange, make_scenario(fits), Form::split);
    exchange.check();
  });
}

// What an overflowing dispatch may not do, and what a usual one refuses as ever.
void refused_calls(const Target& target) {
  ScenarioSettings settings = overflowing("bf16", RowOrder::padded, "uniform");
  const Scenario scenario = make_scenario(settings);
  on_ranks(target, settings.shape.ranks, describe(settings), [&](World& world) {
    require_orders(world, settings);
    const int rank = world.rank();
    Exchange exchange(world, settings.shape, settings.options);
    RankRound round(scenario, rank);
    const auto refuses = [&](const char* what, const std::vector<std::string>& fragments) {
      expect_error(rank, what, ErrorKind::invalid_argument, fragments, [&] { exchange.dispatch(round.in, round.out); });
      round.check_untouched();
    };
    round.in.overflow = Overflow::refused;
    refuses("a small stride without overflow", {"expert_stride is 3", "42", "unless rows may overflow"});
    round.in.overflow = Overflow::expected;
    HandleMemory handle(exchange);
    round.out.handle = handle.tensor();
    refuses("a handle of padded rows without room", {"handle", "expert_stride is 3", "42"});
    round.out.handle = {};
    round.in.expert_stride = -1;
    refuses("a negative stride", {"expert_stride is -1", "1 or more"});
    run_round(exchange, scenario, Form::one_call);
  });
  ScenarioSettings shared = overflowing("bf16", RowOrder::by_expert, "uniform");
  shared.options.fused_shared_expert = true;
  shared.room_percent = 10;
  const Scenario too_small = make_scenario(shared);
  on_ranks(target, shared.shape.ranks, describe(shared), [&](World& world) {
    require_orders(world, shared);
    Exchange exchange(world, shared.shape, shared.options);
    RankRound round(too_small, world.rank());
    expect_error(world.rank(), "no room for the shared expert", ErrorKind::invalid_argument,
                 {"payload", "fused shared expert"}, [&] { exchange.dispatch(round.in, round.out); });
    round.check_untouched();
  });
}

}  // namespace

void add_overflow_cases(Cases& cases) {
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::padded, RowOrder::by_source, RowOrder::in_place}) {
    const auto add = [&](const char* which, const char* what, bool quick, auto run) {
      cases.push_back({std::string("overflow/") + which + "_" + to_string(order), what, quick,
                       [order, run](const Target& target) { run(target, order); }});
    };
    add("formats", "rows without room, for every format and several capacities", true, every_format);
    add("routings", "the same for every routing", false, every_routing);
    add("wide", "the same for hidden 2880", false, wide_rows);
    add("handles", "handles of dispatches without room for all rows", true, handles);
    add("handles_home", "the same where weights go home", true, handles_home);
    add("handles_late", "the same with late weights", true, handles_late);
  }
  cases.push_back({"overflow/mixed", "ranks of all orders without room, several rounds", true, mixed});
  cases.push_back({"overflow/shared_expert", "a fused shared expert, whose rows fit", true, shared_expert});
  cases.push_back({"overflow/told_once", "check() tells of overflow once", true, told_once});
  cases.push_back({"overflow/refused", "strides, handles and shared experts without room", true, refused_calls});
}

}  // namespace ferry::conformance
