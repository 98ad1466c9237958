// Cases over dispatches by counts: destination ranks and counts in place of ids.
#include "conformance/cases/cases.h"
#include "conformance/rounds/handle_sequence.h"

namespace ferry::conformance {
namespace {

constexpr Shape kShape{.ranks = 3, .experts = 8, .top_k = 4, .max_tokens = 14, .hidden = 96};

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
      settings.options.returns_weights = true;
      settings.num_bias = 1;
      run_scenario(target, settings, Form::one_call);
    }
}

// By counts and by ids on one exchange, with counts that the host asks for and outputs that hold what came, and a
// handle.
void mixed(const Target& target) {
  ScenarioSettings settings = settings_for(kShape, 62);
  settings.options.short_handles = true;
  const Scenario counted = make_scenario(settings);
  settings.exact_rows = true;
  const Scenario exact = make_scenario(settings);
  settings.by_counts = settings.exact_rows = false;
  const Scenario named = make_scenario(settings);
  on_ranks(target, kShape.ranks, "dispatches by counts and by ids", [&](World& world) {
    require_settings(world, counted.settings);
    require_orders(world, settings);
    Exchange exchange(world, kShape, settings.options);
    HandleMemory handle(exchange, counted);
    for (int turn = 0; turn < 3; ++turn) {
      run_round(exchange, named, Form::one_call);
      RankRound round(exact, world.rank());
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

// Tokens for a masked rank are dropped, and so are counts of its experts: on an exchange that is made without the rank,
// and on one that the rank leaves.
void masked(const Target& target) {
  if (!target.can_lose_ranks) throw Skipped("this backend cannot go on without a rank");
  for (int lost = 0; lost < kShape.ranks; ++lost) {
    ScenarioSettings settings = settings_for(kShape, 67);
    const Scenario before = make_scenario(settings);
    settings.options.mask.assign(static_cast<std::size_t>(kShape.ranks), false);
    settings.options.mask[static_cast<std::size_t>(lost)] = true;
    run_scenario(target, settings, lost == 0 ? Form::split : Form::one_call);
    const Scenario after = make_scenario(settings);
    on_ranks(target, kShape.ranks, "counts while a rank is masked", [&](World& world) {
      require_settings(world, settings);
      require_orders(world, settings);
      Exchange exchange(world, kShape, before.settings.options);
      for (int round = 0; round < 2; ++round) run_round(exchange, before, Form::split);
      if (world.rank() == lost) return;
      exchange.add_to_mask(settings.options.mask);
      for (int round = 0; round < 3; ++round) run_round(exchange, after, Form::one_call);
    });
  }
}

// Sums that i32 cannot hold.
void large(const Target& target) {
  const Scenario scenario = make_scenario(settings_for(kShape, 66));
  on_ranks(target, kShape.ranks, "counts whose sums are large", [&](World& world) {
    require_settings(world, scenario.settings);
    require_orders(world, scenario.settings);
    if (!world.capabilities().asked_counts) throw Skipped("the exchanges of this world do not tell the host what came");
    Exchange exchange(world, kShape, scenario.settings.options);
    const std::vector<std::int32_t> given(static_cast<std::size_t>(kShape.experts), INT32_MAX);
    RankRound round(scenario, world.rank());
    round.in.expert_counts.data = given.data();
    exchange.dispatch_async(round.in);
    const RowCounts counts = exchange.wait_for_counts();
    exchange.dispatch_wait(round.out);
    for (std::size_t local = 0; local < counts.by_expert.size(); ++local) {
      expect_equal(world.rank(), "RowCounts::by_expert", std::uint64_t{INT32_MAX} * kShape.ranks,
                   static_cast<std::uint64_t>(counts.by_expert[local]));
      expect_equal(world.rank(), "counts", INT32_MAX,
                   static_cast<std::uint64_t>(round.out.counts.as<std::int32_t>()[local]));
    }
    run_combine(exchange, round, Form::one_call);
    round.check_tokens();
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
  const Scenario scenario =
      make_scenario(settings_for({.ranks = 4, .experts = 8, .top_k = 2, .max_tokens = 6, .hidden = 32}, 64));
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

// All CPU ranks refuse a dispatch to which some gave ids, and go on. GPUs do so if they ask; else the ranks that gave
// counts learn of it.
void some_ranks(const Target& target) {
  ScenarioSettings settings = settings_for(kShape, 65);
  const Scenario counted = make_scenario(settings);
  settings.by_counts = false;
  const Scenario named = make_scenario(settings);
  on_ranks(target, kShape.ranks, "counts on some ranks", [&](World& world) {
    require_settings(world, counted.settings);
    require_orders(world, settings);
    Exchange exchange(world, kShape, settings.options);
    const bool is_gpu = world.capabilities().gpus;
    for (const bool asks : {false, true}) {
      RankRound round(world.rank() == 1 ? counted : named, world.rank());
      const auto refused = [&](const auto& call) {
        expect_error(world.rank(), "counts on rank 1", ErrorKind::invalid_argument, {"in_rank", "topk_ids"}, call);
      };
      if (asks) {
        exchange.dispatch_async(round.in);
        refused([&] { is_gpu ? void(exchange.wait_for_counts()) : exchange.dispatch_wait(round.out); });
      } else if (is_gpu && world.rank() != 1) {
        exchange.dispatch(round.in, round.out);
      } else {
        refused([&] { exchange.dispatch(round.in, round.out); });
      }
      run_round(exchange, counted, Form::split);
      run_round(exchange, named, Form::one_call);
    }
  });
}

}  // namespace

void add_counts_cases(Cases& cases) {
  cases.push_back({"counts/by_counts", "destination ranks and counts in place of ids", true, by_counts});
  cases.push_back({"counts/mixed", "dispatches by counts and by ids, and a handle", true, mixed});
  cases.push_back({"counts/large", "counts whose sums are large", true, large});
  cases.push_back({"counts/masked", "counts while one rank is masked", true, masked});
  cases.push_back({"counts/refused", "what does not go with counts", true, refused});
  cases.push_back({"counts/too_many_ranks", "a token for more ranks than it has results", true, too_many_ranks});
  cases.push_back({"counts/some_ranks", "some ranks give counts and others ids", true, some_ranks});
}

}  // namespace ferry::conformance
