// Cases over the orders of rows: each with every format and routing, ranks that choose different ones, handles, and
// what is refused.
#include <algorithm>
#include <memory>

#include "conformance/cases/cases.h"
#include "conformance/rounds/handle_sequence.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {
namespace {

constexpr RowOrders kAllOrders{RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};
constexpr Reduction kReductions[] = {Reduction::by_rank, Reduction::exact};

ScenarioSettings settings_for(const char* format, Reduction reduction, std::vector<RowOrder> orders) {
  ScenarioSettings settings;
  settings.shape = {.ranks = 3, .experts = 8, .top_k = 4, .max_tokens = 14, .hidden = 96};
  settings.options = options_for(format, reduction);
  for (const RowOrder order : orders)
    if (order == RowOrder::by_source) settings.options.row_orders = kAllOrders;
  settings.row_orders = std::move(orders);
  settings.routing = "ragged";
  settings.seed = 31;
  return settings;
}

// by_source has no exact.
bool goes_with(RowOrder order, Reduction reduction) {
  return order != RowOrder::by_source || reduction == Reduction::by_rank;
}

void every_format(const Target& target, RowOrder order) {
  for (const AnyFormat& format : all_formats()) {
    for (const Reduction reduction : kReductions) {
      if (!goes_with(order, reduction)) continue;
      ScenarioSettings settings = settings_for(format.name(), reduction, {order});
      settings.row_dtype = reduction == Reduction::exact ? DType::bf16 : DType::f32;
      settings.input_scale = format.name() == std::string("nvfp4") ? 37.5f : 1.0f;
      run_scenario(target, settings, reduction == Reduction::exact ? Form::split : Form::one_call);
      settings.options.workers = 2;
      settings.options.expert_alignment = 16;
      settings.options.tiled_scales = format.name() == std::string("mxfp8");
      run_scenario(target, settings);
    }
  }
}

// No tokens, none of some ranks, all to one rank or expert, no experts, few and many k, experts that do not divide.
void every_routing(const Target& target, RowOrder order, const char* routing) {
  for (const Shape& shape : {Shape{3, 11, 4, 20, 64}, Shape{4, 6, 1, 70, 32}, Shape{3, 25, 22, 5, 32}}) {
    for (const char* format : {"bf16", "fp8_block128", "nvfp4"}) {
      ScenarioSettings settings = settings_for(format, Reduction::by_rank, {order});
      settings.shape = shape;
      settings.routing = routing;
      settings.id_dtype = shape.top_k == 1 ? DType::i64 : DType::i32;
      run_scenario(target, settings, Form::one_call);
    }
  }
}

void wide_rows(const Target& target, RowOrder order) {
  for (const Shape& shape : {Shape{2, 8, 4, 16, 2880}, Shape{2, 16, 8, 6, 7168}})
    for (const char* format : {"bf16", "fp8_block128", "mxfp8"}) {
      ScenarioSettings settings = settings_for(format, Reduction::by_rank, {order});
      settings.shape = shape;
      run_scenario(target, settings);
    }
}

void weights_and_ids(const Target& target, RowOrder order) {
  for (const WeightForm form : {WeightForm::none, WeightForm::array, WeightForm::hook}) {
    ScenarioSettings settings = settings_for("mxfp8", Reduction::by_rank, {order});
    settings.weights = form;
    settings.id_dtype = form == WeightForm::array ? DType::i64 : DType::i32;
    settings.encoded = form == WeightForm::none ? Encoded::odd_ranks : Encoded::nobody;
    settings.output_dtype = DType::f32;
    run_scenario(target, settings, Form::one_call);
  }
}

void skip_a2a(const Target& target, RowOrder order) {
  for (const char* format : {"bf16", "fp8_block128"}) {
    ScenarioSettings settings = settings_for(format, Reduction::by_rank, {order});
    settings.options.skip_a2a = true;
    run_scenario(target, settings);
  }
}

// Several rounds, so that both copies of the slots are used.
void mixed(const Target& target, const std::vector<RowOrder>& orders) {
  std::vector<Scenario> rounds;
  for (const char* routing : {"ragged", "some_none", "empty_ranks", "uniform", "no_tokens", "zipf"}) {
    ScenarioSettings settings = settings_for("fp8_block128", Reduction::by_rank, orders);
    settings.shape.ranks = 4;
    settings.routing = routing;
    settings.seed = 50 + rounds.size();
    std::rotate(settings.row_orders.begin(),
                settings.row_orders.begin() + static_cast<std::ptrdiff_t>(rounds.size() % orders.size()),
                settings.row_orders.end());
    rounds.push_back(make_scenario(settings));
  }
  const Scenario& first = rounds.front();
  on_ranks(target, first.settings.shape.ranks, "ranks that choose different orders", [&](World& world) {
    require_orders(world, first.settings);
    Exchange exchange(world, first.settings.shape, first.settings.options);
    for (const Scenario& round : rounds) {
      run_round(exchange, round, Form::split);
      run_round(exchange, round, Form::one_call);
    }
  });
}

// With four copies of the slots the rows of a dispatch stay until the third next one begins, whatever other ranks send.
void read_two_dispatches_later(const Target& target) {
  std::vector<Scenario> dispatches;
  for (const char* routing :
       {"ragged", "uniform", "some_none", "zipf", "empty_ranks", "uniform", "no_tokens", "ragged", "zipf", "uniform"}) {
    ScenarioSettings settings = settings_for("mxfp8", Reduction::by_rank, {RowOrder::in_place});
    settings.options.message_copies = 4;
    settings.routing = routing;
    settings.seed = 70 + dispatches.size();
    dispatches.push_back(make_scenario(settings));
  }
  const ScenarioSettings& settings = dispatches.front().settings;
  on_ranks(target, settings.shape.ranks, "rows in place, read two dispatches later", [&](World& world) {
    require_orders(world, settings);
    Exchange exchange(world, settings.shape, settings.options);
    std::vector<std::unique_ptr<RankRound>> rounds;
    for (const Scenario& dispatch : dispatches) {
      RankRound& round = *rounds.emplace_back(std::make_unique<RankRound>(dispatch, world.rank()));
      exchange.dispatch(round.in, round.out);
      if (rounds.size() > 2) {
        RankRound& earlier = *rounds[rounds.size() - 3];
        earlier.read_slots(exchange.arrival_slots());
        earlier.check_rows();
      }
      if (rounds.size() % 3 != 0) continue;
      run_combine(exchange, round, Form::one_call);
      round.check_tokens();
    }
  });
}

// What a rank sends home is a partial sum of its own making or of the caller's, in any format of results.
void results(const Target& target, const std::vector<RowOrder>& orders) {
  for (const AnyFormat& format : result_formats())
    for (const DType rows : {DType::bf16, DType::f32}) {
      ScenarioSettings settings = settings_for("mxfp8", Reduction::by_rank, orders);
      settings.options.result_format = format;
      settings.num_bias = 1;
      if (rows == DType::f32) settings.sum_order = SumOrder::by_last_k;
      settings.row_dtype = rows;
      run_scenario(target, settings, rows == DType::f32 ? Form::split : Form::one_call);
    }
}

void strides(const Target& target) {
  for (const std::int64_t stride : {0, 42, 50, 128, 130})
    for (const AnyFormat& format : all_formats()) {
      ScenarioSettings settings = settings_for(format.name(), Reduction::by_rank, {RowOrder::padded});
      settings.expert_stride = stride;
      settings.options.fused_shared_expert = stride == 50 || stride == 128;
      run_scenario(target, settings, Form::one_call);
    }
}

// Dispatches that leave handles and are repeated, combines in any order.
void handles(const Target& target, RowOrder order, std::uint64_t seed) {
  ScenarioSettings first = settings_for("nvfp4", Reduction::by_rank, {order});
  ScenarioSettings second = settings_for("bf16", Reduction::by_rank, {order});
  first.options.result_format = format_named("fp8_block128");
  first.shape = second.shape = {.ranks = 3, .experts = 7, .top_k = 3, .max_tokens = 6, .hidden = 64};
  second.shape.hidden = 96;
  const HandleSequence sequence = make_handle_sequence({first, second}, seed, 16);
  on_ranks(target, first.shape.ranks, std::string("handles of rows ") + to_string(order), [&](World& world) {
    if (!world.capabilities().handles) throw Skipped("the exchanges of this world have no handles");
    require_orders(world, first);
    std::vector<Exchange> exchanges;
    for (const ScenarioSettings& each : sequence.exchanges) exchanges.emplace_back(world, each.shape, each.options);
    run_handle_sequence(exchanges, sequence);
  });
}

struct Spoiled {
  const char* what;
  RowOrder order;
  std::vector<std::string> fragments;  // that the error must hold
  std::function<void(RankRound&)> spoil;
};

std::vector<Spoiled> spoiled_padded() {
  using enum RowOrder;
  return {
      {"row_topk_ids for rows by_expert",
       by_expert,
       {"row_topk_ids", "by_source"},
       [](RankRound& r) {
         r.out.row_topk_ids = Tensor(r.row_topk_ids.data(), DType::i32, {1, 4});
       }},
      {"a stride for rows by_expert",
       by_expert,
       {"expert_stride", "64"},
       [](RankRound& r) { r.in.expert_stride = 64; }},
      {"a stride too small", padded, {"expert_stride", "41", "42"}, [](RankRound& r) { r.in.expert_stride = 41; }},
      {"a stride too large",
       padded,
       {"expert_stride", "2147483647"},
       [](RankRound& r) { r.in.expert_stride = std::int64_t{1} << 40; }},
      {"a padded payload too small",
       padded,
       {"payload", "80", "least_rows"},
       [](RankRound& r) { r.out.payload.shape[0] = 80; }},
      {"no counts", padded, {"counts", "not given"}, [](RankRound& r) { r.out.counts = {}; }},
      {"u32 counts", padded, {"counts", "u32", "i32"}, [](RankRound& r) { r.out.counts.dtype = DType::u32; }},
      {"padded scales of rows that are not",
       padded,
       {"scales", "42"},
       [](RankRound& r) {
         r.out.scales = Tensor(r.scales.data(), DType::f32, {1, 42});
       }},
  };
}

std::vector<Spoiled> spoiled_source_and_gather() {
  using enum RowOrder;
  return {
      {"row_offsets by_source",
       by_source,
       {"row_offsets", "by_source"},
       [](RankRound& r) { r.out.row_offsets = Tensor(r.row_offsets.data(), DType::u32, {3}); }},
      {"f32 row_topk_ids",
       by_source,
       {"row_topk_ids", "f32", "i64"},
       [](RankRound& r) { r.out.row_topk_ids.dtype = DType::f32; }},
      {"row_topk_ids of fewer rows",
       by_source,
       {"row_topk_ids", "[40, 4]"},
       [](RankRound& r) { r.out.row_topk_ids.shape[0] = 40; }},
      {"bf16 row_topk_weights",
       by_source,
       {"row_topk_weights", "bf16", "f32"},
       [](RankRound& r) { r.out.row_topk_weights.dtype = DType::bf16; }},
      {"no source_offsets",
       by_source,
       {"source_offsets", "not given"},
       [](RankRound& r) { r.out.source_offsets = {}; }},
      {"source_offsets too short",
       by_source,
       {"source_offsets", "[3]", "4"},
       [](RankRound& r) { r.out.source_offsets.shape[0] = 3; }},
      {"a payload in_place",
       in_place,
       {"payload", "in_place"},
       [](RankRound& r) {
         r.out.payload = Tensor(r.payload.data(), DType::u8, {400, 96});
       }},
      {"no gather", in_place, {"gather", "not given"}, [](RankRound& r) { r.out.gather = {}; }},
      {"u32 gather", in_place, {"gather", "u32", "i32"}, [](RankRound& r) { r.out.gather.dtype = DType::u32; }},
  };
}

// Every rank is given the bad call, then does a whole good round on the same exchange.
void refused_calls(const Target& target, const std::vector<Spoiled>& all) {
  for (const Spoiled& bad : all) {
    const Scenario scenario = make_scenario(settings_for("fp8_block128", Reduction::by_rank, {bad.order}));
    on_ranks(target, scenario.settings.shape.ranks, std::string("refused: ") + bad.what, [&](World& world) {
      require_orders(world, scenario.settings);
      Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
      RankRound round(scenario, world.rank());
      bad.spoil(round);
      expect_error(world.rank(), bad.what, ErrorKind::invalid_argument, bad.fragments,
                   [&] { exchange.dispatch(round.in, round.out); });
      round.check_untouched();
      run_round(exchange, scenario, Form::split);
    });
  }
}

// An order that the exchange was not made for; and rows of another order than the handle's.
void refused_orders(const Target& target) {
  const Scenario usual = make_scenario(settings_for("bf16", Reduction::by_rank, {}));
  on_ranks(target, usual.settings.shape.ranks, "orders that are refused", [&](World& world) {
    const int rank = world.rank();
    Exchange exchange(world, usual.settings.shape, usual.settings.options);
    RankRound round(usual, rank);
    round.in.row_order = RowOrder::by_source;
    expect_error(rank, "by_source on an exchange that was not made for it", ErrorKind::invalid_argument,
                 {"by_source", "by_expert, padded, in_place", "row_orders"},
                 [&] { exchange.dispatch(round.in, round.out); });
    round.check_untouched();
    if (!world.capabilities().handles || !world.capabilities().row_orders.has(RowOrder::padded))
      return run_round(exchange, usual, Form::split);
    HandleMemory handle(exchange);
    round.in.row_order = RowOrder::by_expert;
    round.out.handle = handle.tensor();
    exchange.dispatch(round.in, round.out);
    DispatchInput in = input_with(round, handle);
    in.row_order = RowOrder::padded;
    expect_error(rank, "another order than the handle's", ErrorKind::invalid_argument, {"by_expert", "padded"},
                 [&] { exchange.dispatch(in, round.out); });
    exchange.combine(round.combine_in, round.combine_out);
    round.check_tokens();
  });
}

void add_cases_of(Cases& cases, RowOrder order) {
  const std::string name = std::string("orders/") + to_string(order);
  const auto add = [&](const std::string& which, const char* what, bool quick, auto run) {
    cases.push_back({name + "_" + which, what, quick, [order, run](const Target& target) { run(target, order); }});
  };
  add("formats", "every format, aligned and not, tiled scales, two workers", true, every_format);
  add("wide", "hidden 2880 and 7168", false, wide_rows);
  add("weights", "no weights, an array, a hook; int64 ids; encoded tokens", true, weights_and_ids);
  add("skip_a2a", "replicated tokens", true, skip_a2a);
  for (const test::RoutingCase& routing : test::routing_cases())
    cases.push_back({name + "_" + routing.name, routing.what, false,
                     [order, &routing](const Target& target) { every_routing(target, order, routing.name); }});
  for (std::uint64_t seed = 1; seed <= 3; ++seed)
    cases.push_back({name + "_handles_" + std::to_string(seed), "dispatches and combines with handles in any order",
                     seed == 1, [order, seed](const Target& target) { handles(target, order, seed); }});
}

}  // namespace

void add_order_cases(Cases& cases) {
  for (const RowOrder order : {RowOrder::padded, RowOrder::by_source, RowOrder::in_place}) add_cases_of(cases, order);
  cases.push_back(
      {"orders/mixed", "ranks that choose different orders, and others in every round", true, [](const Target& target) {
         mixed(target, {RowOrder::by_source, RowOrder::padded, RowOrder::by_expert, RowOrder::in_place});
       }});
  cases.push_back(
      {"orders/results", "results in every format, from ranks of different orders", true, [](const Target& target) {
         results(target, {RowOrder::by_source, RowOrder::padded, RowOrder::by_expert});
       }});
  cases.push_back(
      {"orders/results_in_place", "the same, where a rank has rows in place", true, [](const Target& target) {
         results(target, {RowOrder::by_source, RowOrder::in_place});
       }});
  cases.push_back({"orders/in_place_later", "four copies of the slots: rows in place, read two dispatches later", true,
                   read_two_dispatches_later});
  cases.push_back({"orders/strides", "padded experts at other strides, with a fused shared expert", true, strides});
  cases.push_back({"orders/refused_padded", "strides, counts and outputs of other orders", true,
                   [](const Target& target) { refused_calls(target, spoiled_padded()); }});
  cases.push_back({"orders/refused_outputs", "outputs by_source and in_place: missing, of a wrong dtype or shape", true,
                   [](const Target& target) { refused_calls(target, spoiled_source_and_gather()); }});
  cases.push_back(
      {"orders/refused_orders", "an order that is not the exchange's or the handle's", true, refused_orders});
}

}  // namespace ferry::conformance
