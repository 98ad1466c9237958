// Cases over the outputs that a dispatch may leave out.
#include <algorithm>

#include "conformance/cases/cases.h"
#include "conformance/rounds/handle_sequence.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {
namespace {

constexpr RowOrders kAllOrders{RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};

ScenarioSettings settings_for(const char* format, RowOrder order, const char* routing = "ragged") {
  ScenarioSettings settings;
  settings.shape = {.ranks = 3, .experts = 8, .top_k = 4, .max_tokens = 14, .hidden = 96};
  settings.options = options_for(format);
  if (order == RowOrder::by_source) settings.options.row_orders = kAllOrders;
  settings.row_orders = {order};
  settings.routing = routing;
  settings.seed = 61;
  settings.more_outputs = true;
  return settings;
}

constexpr ScaleForm kScaleForms[] = {ScaleForm::rows, ScaleForm::columns, ScaleForm::numbers,
                                     ScaleForm::groups_of_four};

bool goes_with(ScaleForm form, const AnyFormat& format) {
  const bool is_nvfp4 = format.name() == std::string("nvfp4");
  return form == ScaleForm::rows || form == ScaleForm::columns ||
         (format.scale_bytes() == 1 && (form != ScaleForm::numbers || !is_nvfp4));
}

void every_format(const Target& target, RowOrder order) {
  for (const AnyFormat& format : all_formats())
    for (const ScaleForm form : kScaleForms) {
      if (!goes_with(form, format)) continue;
      ScenarioSettings settings = settings_for(format.name(), order);
      settings.scale_form = form;
      settings.zero_padding = order != RowOrder::in_place && form != ScaleForm::columns;
      settings.options.expert_alignment = form == ScaleForm::rows ? 16 : 0;
      settings.options.tiled_scales = format.name() == std::string("mxfp8") && form == ScaleForm::rows;
      settings.options.workers = form == ScaleForm::rows ? 2 : 1;
      run_scenario(target, settings, form == ScaleForm::rows ? Form::split : Form::one_call);
    }
}

// No tokens, none of some ranks, all to one rank or expert, no experts, one k and many, experts that do not divide.
void every_routing(const Target& target, RowOrder order) {
  for (const test::RoutingCase& routing : test::routing_cases())
    for (const Shape& shape : {Shape{3, 11, 4, 20, 32}, Shape{4, 6, 1, 40, 32}, Shape{3, 25, 22, 5, 32}}) {
      ScenarioSettings settings = settings_for("fp8_block128", order, routing.name);
      settings.shape = shape;
      settings.zero_padding = order != RowOrder::in_place;
      run_scenario(target, settings, Form::one_call);
    }
}

void wide_rows(const Target& target, RowOrder order) {
  for (const char* format : {"bf16", "fp8_block128_ue8m0", "nvfp4"}) {
    ScenarioSettings settings = settings_for(format, order);
    settings.shape = {.ranks = 2, .experts = 9, .top_k = 4, .max_tokens = 16, .hidden = 2880};
    settings.scale_form = ScaleForm::columns;
    settings.zero_padding = order != RowOrder::in_place;
    run_scenario(target, settings);
  }
}

void options(const Target& target, RowOrder order) {
  ScenarioSettings settings = settings_for("mxfp8", order);
  settings.weights = WeightForm::none;
  settings.options.skip_a2a = true;
  run_scenario(target, settings);
  settings.options.skip_a2a = false;
  settings.options.mask = {false, true, false};
  run_scenario(target, settings);
  settings.options.mask = {};
  if (order == RowOrder::by_source) return;
  settings.options.reduction = Reduction::exact;
  settings.weights = WeightForm::array;
  run_scenario(target, settings);
  if (order == RowOrder::in_place) return;
  settings.options.fused_shared_expert = true;
  settings.zero_padding = true;
  run_scenario(target, settings);
}

// Handles know what the outputs of a replay need.
// A dispatch that leaves a handle, one that is given it, and their combines.
void kept_and_replayed(const Target& target, const ScenarioSettings& wanted) {
  const ScenarioSettings settings = fitted(target, wanted);
  const Scenario first = make_scenario(settings), second = with_other_tokens(first, settings, 8);
  on_ranks(target, settings.shape.ranks, describe(settings), [&](World& world) {
    if (!world.capabilities().handles) throw Skipped("the exchanges of this world have no handles");
    require_orders(world, settings);
    Exchange exchange(world, settings.shape, settings.options);
    HandleMemory handle(exchange);
    RankRound round(first, world.rank());
    round.out.handle = handle.tensor();
    run_dispatch(exchange, round, Form::one_call);
    round.check_rows();
    run_combine(exchange, round, Form::split);
    round.check_tokens();
    RankRound replay(second, world.rank());
    replay.in = input_with(replay, handle);
    run_dispatch(exchange, replay, Form::split);
    replay.check_rows();
    replay.combine_in = combine_input_with(replay, handle);
    run_combine(exchange, replay, Form::one_call);
    replay.check_tokens();
  });
}

void handles(const Target& target, RowOrder order) {
  ScenarioSettings settings = settings_for("mxfp8", order);
  settings.scale_form = ScaleForm::groups_of_four;
  settings.zero_padding = order != RowOrder::in_place;
  kept_and_replayed(target, settings);
}

// ---- usual outputs that are left out

constexpr LeftOut kLeftOut[] = {{.row_offsets = true},
                                {.expert_ids = true},
                                {.src_info = true},
                                {.row_offsets = true, .expert_ids = true, .src_info = true}};

std::vector<LeftOut> left_out_of(RowOrder order) {
  if (order == RowOrder::by_source) return {{.src_info = true}};
  return {std::begin(kLeftOut), std::end(kLeftOut)};
}

// Scales in each layout, groups with padding, ranks without tokens.
void without_usual(const Target& target, RowOrder order, bool more_outputs) {
  for (const LeftOut& left_out : left_out_of(order))
    for (const char* format : {"bf16", "fp8_block128", "mxfp8"}) {
      const bool all = left_out.row_offsets && left_out.src_info;
      ScenarioSettings settings = settings_for(format, order, all ? "empty_ranks" : "ragged");
      settings.left_out = left_out;
      settings.more_outputs = more_outputs;
      settings.zero_padding = more_outputs && order != RowOrder::in_place;
      settings.options.expert_alignment = 4;
      settings.options.tiled_scales = format == std::string("mxfp8");
      run_scenario(target, settings, left_out.src_info ? Form::split : Form::one_call);
    }
}

// With skip_a2a, with a fused shared expert, with rows that have no room.
void without_usual_options(const Target& target, RowOrder order) {
  for (const LeftOut& left_out : left_out_of(order)) {
    ScenarioSettings settings = settings_for("mxfp8", order);
    settings.left_out = left_out;
    settings.more_outputs = false;
    settings.options.skip_a2a = true;
    run_scenario(target, settings);
    settings.options.skip_a2a = false;
    settings.options.fused_shared_expert = order == RowOrder::by_expert || order == RowOrder::padded;
    run_scenario(target, settings);
    settings.options.fused_shared_expert = false;
    settings.overflow = Overflow::expected;
    settings.room_percent = 40;
    settings.expert_stride = 2;
    settings.spare_rows = 0;
    run_scenario(target, settings, Form::one_call);
  }
}

void without_usual_handles(const Target& target, RowOrder order) {
  for (const LeftOut& left_out : left_out_of(order)) {
    ScenarioSettings settings = settings_for("fp8_block128", order);
    settings.more_outputs = false;
    settings.left_out = left_out;
    settings.options.expert_alignment = 4;
    kept_and_replayed(target, settings);
  }
}

struct Spoiled {
  const char* what;
  RowOrder order;
  std::vector<std::string> fragments;  // that the error must hold
  std::function<void(RankRound&)> spoil;
};

std::vector<Spoiled> spoiled_arrays() {
  using enum RowOrder;
  const auto shape_of = [](Tensor DispatchOutput::*field, int axis, std::int64_t extent) {
    return [=](RankRound& r) { (r.out.*field).shape[axis] = extent; };
  };
  const auto dtype_of = [](Tensor DispatchOutput::*field, DType dtype) {
    return [=](RankRound& r) { (r.out.*field).dtype = dtype; };
  };
  using Out = DispatchOutput;
  return {
      {"counts of u32", by_expert, {"counts", "u32", "i32"}, dtype_of(&Out::counts, DType::u32)},
      {"counts too long", in_place, {"counts", "[5]"}, shape_of(&Out::counts, 0, 5)},
      {"source_offsets too short", by_expert, {"source_offsets", "[3]", "[4]"}, shape_of(&Out::source_offsets, 0, 3)},
      {"source_starts of i64", padded, {"source_starts", "i64", "i32"}, dtype_of(&Out::source_starts, DType::i64)},
      {"source_starts of fewer sources", by_source, {"source_starts", "2]", "3]"}, shape_of(&Out::source_starts, 1, 2)},
      {"row_weights of bf16", by_expert, {"row_weights", "bf16", "f32"}, dtype_of(&Out::row_weights, DType::bf16)},
      {"row_weights of fewer rows", padded, {"row_weights", "[7]"}, shape_of(&Out::row_weights, 0, 7)},
      {"row_sources of fewer rows", in_place, {"row_sources", "[7]"}, shape_of(&Out::row_sources, 0, 7)},
      {"messages of fewer columns", by_source, {"messages", "[any, 6]"}, shape_of(&Out::messages, 1, 5)},
      {"messages of fewer lines", by_expert, {"messages", "7", "42"}, shape_of(&Out::messages, 0, 7)},
      {"overflow of two", by_expert, {"overflow", "[1]"}, shape_of(&Out::overflow, 0, 2)},
      {"cumulative_counts of i64", padded, {"cumulative_counts", "i64"}, dtype_of(&Out::cumulative_counts, DType::i64)},
      {"waited_ns of i32", by_source, {"waited_ns", "i32", "i64"}, dtype_of(&Out::waited_ns, DType::i32)},
      {"row_weights by_source",
       by_source,
       {"row_weights", "by_source"},
       [](RankRound& r) { r.out.row_weights = Tensor(r.counts.data(), DType::f32, {1}); }},
      {"row_sources by_source",
       by_source,
       {"row_sources", "by_source"},
       [](RankRound& r) { r.out.row_sources = Tensor(r.counts.data(), DType::i32, {1}); }},
      {"zero_padding in_place",
       in_place,
       {"zero_padding", "in_place"},
       [](RankRound& r) { r.out.zero_padding = true; }},
  };
}

std::vector<Spoiled> spoiled_scales() {
  using enum RowOrder;
  return {
      {"row_scales in_place",
       in_place,
       {"row_scales", "in_place"},
       [](RankRound& r) {
         r.out.row_scales = Tensor(r.scales.data(), DType::u8, {1, 3});
       }},
      {"row_scales of f16",
       by_expert,
       {"row_scales", "f16", "mxfp8", "u8", "i32", "f32"},
       [](RankRound& r) { r.out.row_scales.dtype = DType::f16; }},
      {"row_scales of fewer columns",
       by_source,
       {"row_scales", "2", "3"},
       [](RankRound& r) { r.out.row_scales.shape[1] = 2; }},
      {"row_scales that overlap",
       by_expert,
       {"row_scales", "stride", "overlap"},
       [](RankRound& r) { r.out.row_scales.strides[0] = 2; }},
      {"row_scales by group, of a wrong stride",
       padded,
       {"row_scales", "41"},
       [](RankRound& r) {
         r.out.row_scales = Tensor(r.scales.data(), DType::u8, {3, 41, 3});
       }},
      {"neither scales",
       by_expert,
       {"scales", "not given"},
       [](RankRound& r) { r.out.scales = r.out.row_scales = {}; }},
  };
}

// Every rank is given the bad call, then does a whole good round on the same exchange.
void refused(const Target& target, const std::vector<Spoiled>& all, const char* format) {
  for (const Spoiled& bad : all) {
    ScenarioSettings settings = settings_for(format, bad.order);
    settings.scale_form = ScaleForm::rows;
    const Scenario scenario = make_scenario(settings);
    on_ranks(target, settings.shape.ranks, std::string("refused: ") + bad.what, [&](World& world) {
      require_orders(world, settings);
      Exchange exchange(world, settings.shape, settings.options);
      RankRound round(scenario, world.rank());
      bad.spoil(round);
      expect_error(world.rank(), bad.what, ErrorKind::invalid_argument, bad.fragments,
                   [&] { exchange.dispatch(round.in, round.out); });
      round.check_untouched();
      run_round(exchange, scenario, Form::split);
    });
  }
}

void refused_outputs(Exchange& exchange, RankRound& round, int rank) {
  round.out.zero_padding = true;
  expect_error(rank, "zero_padding", ErrorKind::unsupported, {"zero_padding", "leave it out"},
               [&] { exchange.dispatch(round.in, round.out); });
  round.out.zero_padding = false;
  for (Tensor DispatchOutput::*field : {&DispatchOutput::row_weights, &DispatchOutput::messages,
                                        &DispatchOutput::row_scales, &DispatchOutput::waited_ns}) {
    round.out.*field = Tensor(round.counts.data(), DType::i32, {1});
    expect_error(rank, "an output", ErrorKind::unsupported, {"by_expert", "leave it out"},
                 [&] { exchange.dispatch(round.in, round.out); });
    round.out.*field = {};
  }
}

// Worlds that cannot do it say so before anything moves.
void refused_worlds(const Target& target) {
  const Scenario usual = make_scenario([] {
    ScenarioSettings settings = settings_for("bf16", RowOrder::by_expert);
    settings.more_outputs = false;
    return settings;
  }());
  on_ranks(target, usual.settings.shape.ranks, "outputs and overflow that a world refuses", [&](World& world) {
    const WorldCapabilities can = world.capabilities();
    if (can.more_outputs && can.overflow) throw Skipped("the exchanges of this world do all of it");
    const int rank = world.rank();
    Exchange exchange(world, usual.settings.shape, usual.settings.options);
    RankRound round(usual, rank);
    if (!can.overflow) {
      round.in.overflow = Overflow::expected;
      expect_error(rank, "overflow", ErrorKind::unsupported, {"overflow is expected", "least_rows"},
                   [&] { exchange.dispatch(round.in, round.out); });
      round.in.overflow = Overflow::refused;
    }
    if (!can.more_outputs) refused_outputs(exchange, round, rank);
    round.check_untouched();
    run_round(exchange, usual, Form::split);
  });
}

}  // namespace

void add_output_cases(Cases& cases) {
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::padded, RowOrder::by_source, RowOrder::in_place}) {
    const auto add = [&](const char* which, const char* what, bool quick, auto run) {
      cases.push_back({std::string("outputs/") + which + "_" + to_string(order), what, quick,
                       [order, run](const Target& target) { run(target, order); }});
    };
    add("formats", "all outputs that may be left out, scales at strides, for every format", true, every_format);
    add("routings", "the same for every routing", false, every_routing);
    add("wide", "the same for hidden 2880", false, wide_rows);
    add("options", "the same with skip_a2a, a mask, exact, a fused shared expert", true, options);
    add("handles", "outputs of dispatches with a handle", true, handles);
    add("without", "no row_offsets, expert_ids, src_info", true,
        [](const Target& target, RowOrder of) { without_usual(target, of, false); });
    add("without_beside_more", "the same, with all other outputs", false,
        [](const Target& target, RowOrder of) { without_usual(target, of, true); });
    add("without_options", "the same with skip_a2a, a fused shared expert, rows without room", true,
        without_usual_options);
    add("without_handles", "the same with a handle", true, without_usual_handles);
  }
  cases.push_back({"outputs/refused_arrays", "outputs of a wrong dtype, shape or order", true,
                   [](const Target& target) { refused(target, spoiled_arrays(), "fp8_block128"); }});
  cases.push_back({"outputs/refused_scales", "scales at strides: of a wrong dtype or shape, that overlap", true,
                   [](const Target& target) { refused(target, spoiled_scales(), "mxfp8"); }});
  cases.push_back({"outputs/refused_worlds", "what a world cannot do", true, refused_worlds});
}

}  // namespace ferry::conformance
