// Cases over dispatches by counts: destination ranks and counts in place of ids.
#include "conformance/cases.h"
#include "conformance/handle_sequence.h"

namespace ferry::conformance {
namespace {

constexpr Shape kShape{3, 8, 4, 14, 96};

ScenarioSettings settings_for(const Shape& shape, std::uint64_t seed) {
  ScenarioSettings settings;
  settings.shape = shape;
  settings.options = options_for("mxfp8");
  settings.options.row_orders = {RowOrder::by_source};
  settings.options.workers = 2;
  settings.row_orders = {RowOrder::by_source};
  settings.weights = WeightForm::none;
  settings.by_counts = true;
  settings.routing = "ragged";
  settings.seed = seed;
  return settings;
}

void by_counts(const Target& target) {
  for (const Shape& shape : {kShape, Shape{2, 7, 1, 9, 32}, Shape{4, 30, 22, 5, 2880}, Shape{5, 5, 2, 40, 32}})
    for (const char* routing : {"ragged", "no_tokens", "one_rank", "empty_ranks", "some_none"}) {
      ScenarioSettings settings = settings_for(shape, 61);
      settings.routing = routing;
      run_scenario(target, settings, Form::split);
      settings.exact_rows = settings.options.returns_weights = true;
      settings.num_bias = 1;
      run_scenario(target, settings, Form::one_call);
    }
}

// By counts and by ids on one exchange, with counts that the host asks for, and a handle.
void mixed(const Target& target) {
  ScenarioSettings settings = settings_for(kShape, 62);
  const Scenario counted = make_scenario(settings);
  settings.by_counts = false;
  const Scenario named = make_scenario(settings);
  on_ranks(target, kShape.ranks, "dispatches by counts and by ids", [&](World& world) {
    require_settings(world, counted.settings);
    require_orders(world, settings);
    Exchange exchange(world, kShape, settings.options);
    HandleMemory handle(exchange);
    for (int turn = 0; turn < 3; ++turn) {
      run_round(exchange, named, Form::one_call);
      RankRound round(counted, world.rank());
      round.out.handle = handle.tensor();
      exchange.dispatch_async(round.in);
      const RowCounts counts = exchange.wait_for_counts();
      const auto& expected = counted.rows[static_cast<std::size_t>(world.rank())];
      for (std::size_t local = 0; local < expected.counts.size(); ++local)
        expect_equal(world.rank(), "RowCounts::by_expert", static_cast<std::uint64_t>(expected.counts[local]),
                     static_cast<std::uint64_t>(counts.by_expert[local]));
      exchange.dispatch_wait(round.out);
      round.check_rows();
      run_combine(exchange, round, Form::split);
      round.check_tokens();
      RankRound again(counted, world.rank());
      again.in = input_with(again, handle);
      again.in.in_rank = again.in.expert_counts = {};
      again.in.row_order = RowOrder::by_source;
      expect_error(world.rank(), "counts of a handle", ErrorKind::invalid_argument, {"counts", "in_rank"},
                   [&] { exchange.dispatch(again.in, again.out); });
      again.out.counts = {};
      exchange.dispatch(again.in, again.out);
      again.combine_in = combine_input_with(again, handle);
      run_combine(exchange, again, Form::one_call);
      again.check_tokens();
    }
  });
}

struct Spoiled {
  const char* what;
  std::vector<std::string> fragments;
  std::function<void(RankRound&)> spoil;
};

std::vector<Spoiled> spoiled() {
  return {
      {"ids beside ranks",
       {"topk_ids", "in_rank"},
       [](RankRound& r) {
         r.in.topk_ids = ConstTensor(r.topk_ids.data(), DType::i32, {14, 4});
       }},
      {"a weight hook",
       {"weights", "in_rank"},
       [](RankRound& r) { r.in.router_weight = [](void*, int, int) { return 1.0f; }; }},
      {"another order", {"row_order", "by_source"}, [](RankRound& r) { r.in.row_order = RowOrder::by_expert; }},
      {"no counts", {"expert_counts", "not given"}, [](RankRound& r) { r.in.expert_counts = {}; }},
      {"no ranks", {"expert_counts", "in_rank"}, [](RankRound& r) { r.in.in_rank = {}; }},
      {"counts of fewer experts", {"expert_counts", "[7]", "8"}, [](RankRound& r) { r.in.expert_counts.shape[0] = 7; }},
      {"ranks of another world", {"in_rank", "2", "3"}, [](RankRound& r) { r.in.in_rank.shape[1] = 2; }},
      {"i32 ranks", {"in_rank", "i32", "u8"}, [](RankRound& r) { r.in.in_rank.dtype = DType::i32; }},
      {"a 2", {"in_rank[0, 1]", "2"}, [](RankRound& r) { r.in_rank[1] = std::byte{2}; }},
      {"ids out",
       {"row_topk_ids", "in_rank"},
       [](RankRound& r) {
         r.out.row_topk_ids = Tensor(r.row_topk_ids.data(), DType::i32, {r.out.payload.shape[0], 4});
       }},
      {"weights out",
       {"row_topk_weights", "in_rank"},
       [](RankRound& r) {
         r.out.row_topk_weights = Tensor(r.row_topk_weights.data(), DType::f32, {r.out.payload.shape[0], 4});
       }},
  };
}

void refused(const Target& target) {
  ScenarioSettings settings = settings_for(kShape, 63);
  settings.options.row_orders = {RowOrder::by_source, RowOrder::by_expert};
  settings.routing = "uniform";
  const Scenario scenario = make_scenario(settings);
  on_ranks(target, kShape.ranks, "dispatches by counts that are refused", [&](World& world) {
    const int rank = world.rank();
    if (!world.capabilities().counts_dispatch) {
      Exchange exchange(world, kShape, options_for("mxfp8"));
      RankRound round(scenario, rank);
      return expect_error(rank, "in_rank", ErrorKind::unsupported, {"in_rank"},
                          [&] { exchange.dispatch_async(round.in); });
    }
    Exchange exchange(world, kShape, settings.options);
    for (const Spoiled& bad : spoiled()) {
      RankRound round(scenario, rank);
      bad.spoil(round);
      expect_error(rank, bad.what, ErrorKind::invalid_argument, bad.fragments,
                   [&] { exchange.dispatch(round.in, round.out); });
      round.check_untouched();
      run_round(exchange, scenario, Form::split);
    }
  });
}

// A token has min(R, K) result slots.
void too_many_ranks(const Target& target) {
  const Scenario scenario = make_scenario(settings_for({4, 8, 2, 6, 32}, 64));
  on_ranks(target, 4, "a token for more ranks than it has results", [&](World& world) {
    require_settings(world, scenario.settings);
    require_orders(world, scenario.settings);
    Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
    RankRound round(scenario, world.rank());
    const std::vector<std::byte> all(static_cast<std::size_t>(round.in.tokens.shape[0]) * 4, std::byte{1});
    if (!all.empty()) {
      round.in.in_rank.data = all.data();
      expect_error(world.rank(), "a token for 4 ranks", ErrorKind::invalid_argument, {"in_rank[0]", "2"},
                   [&] { exchange.dispatch(round.in, round.out); });
    }
    run_round(exchange, scenario, Form::split);
  });
}

// All ranks refuse a dispatch to which some gave ids, and go on.
void some_ranks(const Target& target) {
  ScenarioSettings settings = settings_for(kShape, 65);
  const Scenario counted = make_scenario(settings);
  settings.by_counts = false;
  const Scenario named = make_scenario(settings);
  on_ranks(target, kShape.ranks, "counts on some ranks", [&](World& world) {
    require_settings(world, counted.settings);
    require_orders(world, settings);
    Exchange exchange(world, kShape, settings.options);
    RankRound round(world.rank() == 1 ? counted : named, world.rank());
    expect_error(world.rank(), "counts on rank 1", ErrorKind::invalid_argument, {"in_rank", "topk_ids"},
                 [&] { exchange.dispatch(round.in, round.out); });
    run_round(exchange, counted, Form::split);
    run_round(exchange, named, Form::one_call);
  });
}

}  // namespace

void add_counts_cases(Cases& cases) {
  cases.push_back({"counts/by_counts", "destination ranks and counts in place of ids", true, by_counts});
  cases.push_back({"counts/mixed", "dispatches by counts and by ids, and a handle", true, mixed});
  cases.push_back({"counts/refused", "what does not go with counts", true, refused});
  cases.push_back({"counts/too_many_ranks", "a token for more ranks than it has results", true, too_many_ranks});
  cases.push_back({"counts/some_ranks", "some ranks give counts and others ids", true, some_ranks});
}

}  // namespace ferry::conformance
