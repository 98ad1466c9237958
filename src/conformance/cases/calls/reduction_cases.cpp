// Cases over exchanges whose combines choose their reduction.
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "conformance/cases/cases.h"
#include "conformance/rounds/handle_sequence.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {
namespace {

constexpr Shape kShape{.ranks = 3, .experts = 8, .top_k = 4, .max_tokens = 14, .hidden = 96};
constexpr RowOrders kAllOrders{RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};
constexpr Reduction kReductions[] = {Reduction::by_rank, Reduction::exact};

ScenarioSettings settings_for(const char* format, std::uint64_t seed, const char* routing) {
  ScenarioSettings settings;
  settings.shape = kShape;
  settings.options = options_for(format, Reduction::either);
  settings.routing = routing;
  settings.seed = seed;
  return settings;
}

// Rounds of both reductions in turn, in every format of results. The dispatch carries the weights either way.
void in_turn(const Target& target) {
  for (const AnyFormat& format : result_formats()) {
    std::vector<Scenario> rounds;
    for (const char* routing : {"ragged", "some_none", "uniform", "no_tokens"}) {
      ScenarioSettings settings = settings_for("mxfp8", 20 + rounds.size(), routing);
      settings.options.result_format = format;
      settings.more_outputs = true;  // the weights of rows among them
      settings.weights = rounds.size() % 3 == 2 ? WeightForm::hook : WeightForm::array;
      settings.chosen = kReductions[rounds.size() / 2 % 2];
      settings.num_bias = rounds.size() % 2 == 0 ? 1 : 0;
      settings.row_dtype = rounds.size() % 2 == 0 ? DType::f32 : DType::bf16;
      rounds.push_back(make_scenario(settings));
    }
    on_ranks(target, kShape.ranks, "combines of both reductions", [&](World& world) {
      Exchange exchange(world, kShape, rounds.front().settings.options);
      for (std::size_t i = 0; i < rounds.size(); ++i)
        run_round(exchange, rounds[i], i % 2 == 0 ? Form::split : Form::one_call);
    });
  }
}

// The handle of one dispatch, combined in both ways and in any order, weights that go home among them; then a replay.
void with_one_handle(const Target& target, RowOrder order) {
  ScenarioSettings settings = settings_for("nvfp4", 31, "ragged");
  settings.row_orders = {order};
  settings.options.returns_weights = true;
  const Scenario sums = make_scenario(settings);
  const Scenario rows = combined_as(sums, Reduction::exact);
  const Scenario again = with_other_tokens(rows, rows.settings, 32);
  on_ranks(target, kShape.ranks, "one handle, both reductions", [&](World& world) {
    if (!world.capabilities().handles) throw Skipped("the exchanges of this world have no handles");
    if (!world.capabilities().returned_weights) throw Skipped("no weights go home in this world");
    Exchange exchange(world, kShape, settings.options);
    HandleMemory handle(exchange);
    RankRound first(sums, world.rank());
    first.out.handle = handle.tensor();
    run_dispatch(exchange, first, Form::one_call);
    first.check_rows();
    int turn = 0;
    for (const Scenario* each : {&rows, &sums, &sums, &rows, &rows, &sums}) {
      RankRound round(*each, world.rank());
      round.combine_in = combine_input_with(round, handle);
      round.combine_in.src_info = {};
      run_combine(exchange, round, ++turn % 2 == 0 ? Form::split : Form::one_call);
      round.check_tokens();
    }
    RankRound replay(again, world.rank());
    replay.in = input_with(replay, handle);
    run_dispatch(exchange, replay, Form::split);
    replay.check_rows();
    replay.combine_in = combine_input_with(replay, handle);
    run_combine(exchange, replay, Form::split);
    replay.check_tokens();
  });
}

// An exact combine is half done when the next dispatch begins and ends; and a sum.
void around_a_dispatch(const Target& target) {
  std::vector<Scenario> rounds;
  for (const Reduction reduction : {Reduction::exact, Reduction::by_rank, Reduction::exact, Reduction::exact}) {
    ScenarioSettings settings = settings_for("fp8_block128", 40 + rounds.size(), "uniform");
    settings.chosen = reduction;
    rounds.push_back(make_scenario(settings));
  }
  on_ranks(target, kShape.ranks, "a dispatch between the halves of a combine", [&](World& world) {
    if (!world.capabilities().handles) throw Skipped("the exchanges of this world have no handles");
    Exchange exchange(world, kShape, rounds.front().settings.options);
    std::vector<std::unique_ptr<RankRound>> of_rank;
    std::vector<HandleMemory> handles;
    for (const Scenario& round : rounds) {
      of_rank.push_back(std::make_unique<RankRound>(round, world.rank()));
      handles.emplace_back(exchange);
    }
    const auto dispatch_wait = [&](std::size_t i) {
      exchange.dispatch_wait(of_rank[i]->out);
      of_rank[i]->check_rows();
    };
    for (std::size_t i = 0; i <= rounds.size(); ++i) {
      if (i < rounds.size()) of_rank[i]->out.handle = handles[i].tensor();
      if (i > 0) exchange.combine_async(combine_input_with(*of_rank[i - 1], handles[i - 1]));
      if (i < rounds.size()) exchange.dispatch_async(of_rank[i]->in);
      if (i < rounds.size() && i % 2 == 1) dispatch_wait(i);
      if (i > 0) exchange.combine_wait(of_rank[i - 1]->combine_out);
      if (i > 0) of_rank[i - 1]->check_tokens();
      if (i < rounds.size() && i % 2 == 0) dispatch_wait(i);
    }
  });
}

// A dispatch gives up a combine that was sent, of either reduction: its results land where it said, whichever the next
// one has (I8).
void abandoned(const Target& target) {
  std::vector<Scenario> rounds;
  for (std::uint64_t i = 0; i < 12; ++i) {
    ScenarioSettings settings = settings_for("bf16", 80 + i, i % 2 == 0 ? "ragged" : "uniform");
    settings.chosen = kReductions[(i + 1) / 2 % 2];
    rounds.push_back(make_scenario(settings));
  }
  on_ranks(target, kShape.ranks, "abandoned combines of both reductions", [&](World& world) {
    Exchange exchange(world, kShape, rounds.front().settings.options);
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      RankRound round(rounds[i], world.rank());
      run_dispatch(exchange, round, i % 3 == 0 ? Form::split : Form::one_call);
      round.check_rows();
      exchange.combine_async(round.combine_in);
      if (i % 2 == 0) continue;  // given up
      exchange.combine_wait(round.combine_out);
      round.check_tokens();
    }
  });
}

// Rows by_source are combined by_rank on an exchange whose other rows may be exact.
void by_source(const Target& target) {
  ScenarioSettings settings = settings_for("bf16", 51, "ragged");
  settings.options.row_orders = kAllOrders;
  settings.row_orders = {RowOrder::by_source};
  const Scenario sums = make_scenario(settings);
  settings.row_orders = {RowOrder::padded, RowOrder::by_expert, RowOrder::in_place};
  settings.chosen = Reduction::exact;
  settings.weights = WeightForm::none;
  settings.unreduced = true;
  const Scenario rows = make_scenario(settings);
  on_ranks(target, kShape.ranks, "rows by_source beside exact ones", [&](World& world) {
    if (!world.capabilities().row_orders.has(RowOrder::by_source))
      throw Skipped("rows of this world are not by_source");
    Exchange exchange(world, kShape, settings.options);
    for (int i = 0; i < 3; ++i) {
      run_round(exchange, sums, i == 1 ? Form::split : Form::one_call);
      run_round(exchange, rows, i == 1 ? Form::one_call : Form::split);
    }
    RankRound round(sums, world.rank());
    exchange.dispatch(round.in, round.out);
    round.combine_in.reduction = Reduction::exact;
    expect_error(world.rank(), "rows by_source, exact", ErrorKind::invalid_argument, {"exact", "by_source"},
                 [&] { exchange.combine(round.combine_in, round.combine_out); });
    round.combine_in.reduction.reset();
    exchange.combine(round.combine_in, round.combine_out);
    round.check_tokens();
  });
}

struct Refused {
  const char* what;
  Reduction of_exchange;
  std::vector<std::string> fragments;
  std::function<void(RankRound&)> spoil;
};

std::vector<Refused> refused_combines() {
  using enum Reduction;
  const auto say = [](Reduction reduction) {
    return [reduction](RankRound& r) { r.combine_in.reduction = reduction; };
  };
  return {
      {"exact on an exchange by_rank", by_rank, {"reduction is exact", "by_rank", "either"}, say(exact)},
      {"by_rank on an exchange that is exact", exact, {"reduction is by_rank", "exact", "either"}, say(by_rank)},
      {"either", either, {"reduction is either", "by_rank or exact"}, say(either)},
      {"weights for a sum",
       either,
       {"topk_weights", "by_rank", "exact"},
       [](RankRound& r) { r.combine_in.topk_weights = r.in.topk_weights; }},
      {"no weights applied to rows",
       either,
       {"apply_weights", "exact"},
       [](RankRound& r) {
         r.combine_in.reduction = exact;
         r.combine_in.apply_weights = false;
       }},
      {"an order of ranks for rows",
       either,
       {"sum_order", "exact"},
       [](RankRound& r) {
         r.combine_in.reduction = exact;
         r.combine_in.sum_order = SumOrder::by_last_k;
       }},
  };
}

void refused(const Target& target) {
  for (const Refused& bad : refused_combines()) {
    ScenarioSettings settings = settings_for("bf16", 61, "uniform");
    settings.options.reduction = bad.of_exchange;
    const Scenario scenario = make_scenario(settings);
    on_ranks(target, kShape.ranks, std::string("refused: ") + bad.what, [&](World& world) {
      Exchange exchange(world, kShape, settings.options);
      RankRound round(scenario, world.rank());
      exchange.dispatch(round.in, round.out);
      const CombineInput good = round.combine_in;
      bad.spoil(round);
      expect_error(world.rank(), bad.what, ErrorKind::invalid_argument, bad.fragments,
                   [&] { exchange.combine(round.combine_in, round.combine_out); });
      round.combine_in = good;
      exchange.combine(round.combine_in, round.combine_out);
      round.check_tokens();
    });
  }
}

// In what rank 0 differs from the others. given_up: in the reduction of a combine that the next dispatch gives up.
enum class Differs { reduction_of_handle, reduction, given_up, has_handle };

// I22: ranks that say different things are told so, with a handle and without. A token has one expert: of more, two
// ranks would write to one slot (I14), which sanitizers tell of.
void that_differ(const Target& target, Differs how) {
  ScenarioSettings settings = settings_for("bf16", 71, "uniform");
  settings.shape.top_k = 1;
  const Scenario scenario = make_scenario(settings);
  on_ranks(target, kShape.ranks, "combines that differ", [&](World& world) {
    if (!world.capabilities().handles) throw Skipped("the exchanges of this world have no handles");
    Exchange exchange(world, settings.shape, settings.options);
    HandleMemory handle(exchange);
    RankRound round(scenario, world.rank());
    round.out.handle = handle.tensor();
    exchange.dispatch(round.in, round.out);
    exchange.combine(round.combine_in, round.combine_out);
    round.check_tokens();
    exchange.dispatch(round.in, round.out);
    const bool is_first = world.rank() == 0;
    const bool gives_handle = how == Differs::reduction_of_handle || (how == Differs::has_handle && is_first);
    CombineInput in = gives_handle ? combine_input_with(round, handle) : round.combine_in;
    in.topk_weights = {};
    in.reduction = how != Differs::has_handle && is_first ? Reduction::exact : Reduction::by_rank;
    // Who hears of it in the dispatch does not hear which call it was.
    std::vector<std::string> said{"all ranks must"};
    if (how != Differs::given_up) said = {"combine", how == Differs::has_handle ? "handle" : "reduction"};
    world.barrier();  // no rank may be told of the call below in one of these
    expect_error(world.rank(), "combines that differ", ErrorKind::invalid_argument, said, [&] {
      exchange.combine_async(in);
      if (how == Differs::given_up)
        exchange.dispatch(round.in, round.out);
      else
        exchange.combine_wait(round.combine_out);
      check_until_told(exchange);
    });
  });
}

}  // namespace

void add_reduction_cases(Cases& cases) {
  cases.push_back({"reductions/in_turn", "rounds of both reductions, results in every format", true, in_turn});
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::padded, RowOrder::in_place})
    cases.push_back({std::string("reductions/one_handle_") + to_string(order),
                     "one handle that is combined in both ways", true,
                     [order](const Target& target) { with_one_handle(target, order); }});
  cases.push_back(
      {"reductions/around_a_dispatch", "a dispatch between the halves of a combine", true, around_a_dispatch});
  cases.push_back(
      {"reductions/abandoned", "a dispatch abandons the combine before it, of either reduction", true, abandoned});
  cases.push_back(
      {"reductions/by_source", "rows by_source on an exchange whose other rows are exact", true, by_source});
  cases.push_back({"reductions/refused", "what a combine may not say of its reduction", true, refused});
  for (const auto& [name, description, how] :
       {std::tuple{"differ", "ranks that combine one handle in different ways", Differs::reduction_of_handle},
        {"differ_without_handle", "ranks that combine one dispatch in different ways", Differs::reduction},
        {"differ_and_give_up", "the same in a combine that is given up", Differs::given_up},
        {"one_has_a_handle", "ranks of which one gives a combine a handle", Differs::has_handle}})
    cases.push_back({std::string("reductions/") + name, description, true,
                     [how = how](const Target& target) { that_differ(target, how); }});
}

}  // namespace ferry::conformance
