// Cases over sizes that are known before rows are written: counts, outputs that hold what came and no more, outputs
// that are too small.
#include "conformance/cases/cases.h"
#include "conformance/rounds/handle_sequence.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {
namespace {

constexpr RowOrders kAllOrders{RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};

ScenarioSettings settings_for(const char* format, RowOrder order, const char* routing = "ragged") {
  ScenarioSettings settings;
  settings.shape = {.ranks = 3, .experts = 10, .top_k = 4, .max_tokens = 12, .hidden = 96};
  settings.options = options_for(format);
  if (order == RowOrder::by_source) settings.options.row_orders = kAllOrders;
  settings.row_orders = {order};
  settings.routing = routing;
  settings.seed = 91;
  settings.exact_rows = true;
  settings.spare_rows = 0;
  return settings;
}

// Where outputs hold what came only if the caller asked: then the two halves of a dispatch are called apart.
bool must_ask(const World& world) { return !world.capabilities().row_counts; }

// Runs `body` on all ranks. Skipped where the host does not learn what came: all ranks of a world agree on that.
void with_counts(const Target& target, const ScenarioSettings& settings, const std::function<void(World&)>& body) {
  on_ranks(target, settings.shape.ranks, describe(settings), [&](World& world) {
    if (!world.capabilities().asked_counts) throw Skipped("the exchanges of this world do not tell the host what came");
    require_orders(world, settings);
    require_settings(world, settings);
    body(world);
  });
}

std::string text_of(const std::vector<std::int64_t>& counts) {
  std::string text;
  for (const std::int64_t count : counts) text += (text.empty() ? "" : ", ") + std::to_string(count);
  return text;
}

// The counts, from the oracle's rows one by one.
void check_counts(const Scenario& scenario, int rank, const RowCounts& got) {
  const test::ExpectedRows& expected = scenario.rows[static_cast<std::size_t>(rank)];
  const bool skips = scenario.settings.options.skip_a2a;
  std::vector<std::int64_t> by_source(static_cast<std::size_t>(skips ? 1 : scenario.settings.shape.ranks));
  for (const test::RowOrigin& row : expected.rows)
    if (!test::is_padding(row)) ++by_source[static_cast<std::size_t>(skips ? 0 : row.source)];
  const std::uint64_t rows = expected.row_offsets.empty() ? expected.rows.size() : expected.row_offsets.back();
  expect_equal(rank, "counts: rows", rows, static_cast<std::uint64_t>(got.rows));
  expect_equal(rank, "counts by expert", text_of({expected.counts.begin(), expected.counts.end()}),
               text_of(got.by_expert));
  expect_equal(rank, "counts by source", text_of(by_source), text_of(got.by_source));
}

void counted_round(Exchange& exchange, const Scenario& scenario, Form form) {
  const int rank = exchange.rank();
  RankRound round(scenario, rank);
  if (form == Form::split) {
    exchange.dispatch_async(round.in);
    for (int again = 0; again < 2; ++again) check_counts(scenario, rank, exchange.wait_for_counts());
    exchange.dispatch_wait(round.out);
  } else {
    exchange.dispatch(round.in, round.out);
  }
  round.read_slots(round.in.row_order == RowOrder::in_place ? exchange.arrival_slots() : ArrivalSlots{});
  round.check_rows();
  run_combine(exchange, round, form);
  round.check_tokens();
}

void run_counted(const Target& target, const ScenarioSettings& wanted) {
  const ScenarioSettings settings = fitted(target, wanted);
  const Scenario scenario = make_scenario(settings);
  with_counts(target, settings, [&](World& world) {
    if (test::is_masked_out(scenario.round, world.rank())) return;
    Exchange exchange(world, settings.shape, settings.options);
    counted_round(exchange, scenario, Form::split);
    counted_round(exchange, scenario, must_ask(world) ? Form::split : Form::one_call);
  });
}

// No tokens, none of some ranks, all to one rank or expert, -1 ids, experts that do not divide.
void every_routing(const Target& target, RowOrder order) {
  for (const test::RoutingCase& routing : test::routing_cases())
    for (const Shape& shape : {Shape{3, 11, 4, 20, 64}, Shape{4, 6, 1, 7, 32}}) {
      ScenarioSettings settings = settings_for("fp8_block128", order, routing.name);
      settings.shape = shape;
      run_counted(target, settings);
    }
}

void every_format(const Target& target, RowOrder order) {
  for (const AnyFormat& format : all_formats()) {
    ScenarioSettings settings = settings_for(format.name(), order);
    settings.options.tiled_scales = format.name() == std::string("mxfp8");
    settings.options.expert_alignment = 8;
    settings.options.workers = 2;
    run_counted(target, settings);
  }
}

void options(const Target& target, RowOrder order) {
  ScenarioSettings settings = settings_for("mxfp8", order);
  settings.options.skip_a2a = true;
  run_counted(target, settings);
  settings.options.skip_a2a = false;
  settings.options.mask = {false, true, false};
  run_counted(target, settings);
  settings.options.mask = {};
  if (order == RowOrder::by_source || order == RowOrder::in_place) return;
  settings.options.fused_shared_expert = true;
  run_counted(target, settings);
  settings.options.skip_a2a = true;
  settings.options.allreduce_world_size = settings.shape.ranks;
  run_counted(target, settings);
  settings.options.reduction = Reduction::exact;
  run_counted(target, settings);
}

// What a caller allocates for `rows` rows, poisoned.
class Outputs {
 public:
  Outputs(const Exchange& exchange, std::int64_t rows, RowOrder order) {
    for (const TensorSpec& spec : dispatch_outputs(exchange.layout(), rows, order))
      out.*spec.field = {memory_.emplace_back(spec.bytes(), kPoison).data(), spec.dtype, spec.shape};
  }
  void check_untouched(int rank) const {
    for (const std::vector<std::byte>& bytes : memory_)
      for (const std::byte each : bytes)
        expect_equal(rank, "an output with a row too few (1: untouched)", 1, each == kPoison ? 1 : 0);
  }

  DispatchOutput out;

 private:
  std::vector<std::vector<std::byte>> memory_;
};

// Rows for which there is no room count as all others.
void overflowing(const Target& target, RowOrder order) {
  for (const int percent : {0, 60}) {
    ScenarioSettings settings = settings_for("fp8_block128", order);
    settings.exact_rows = false;
    settings.overflow = Overflow::expected;
    settings.room_percent = percent;
    settings.expert_stride = order == RowOrder::padded ? 2 : 0;
    run_counted(target, settings);
  }
}

// What a dispatch by counts says of its experts is what all ranks gave for them.
void by_counts(const Target& target) {
  ScenarioSettings settings = settings_for("mxfp8", RowOrder::by_source);
  settings.by_counts = true;
  settings.weights = WeightForm::none;
  run_counted(target, settings);
  settings.exact_rows = false;
  settings.overflow = Overflow::expected;
  settings.room_percent = 60;
  run_counted(target, settings);
}

// A handle says what comes before anything moves, so the whole call may be repeated. Not where the caller must ask.
void replay_too_small(Exchange& exchange, const Scenario& scenario, RowOrder order, HandleMemory& handle) {
  const int rank = exchange.rank();
  const auto came = static_cast<std::int64_t>(scenario.rows[static_cast<std::size_t>(rank)].rows.size());
  RankRound round(scenario, rank);
  round.in = input_with(round, handle);
  if (order != RowOrder::padded && came > 0) {
    const Outputs small(exchange, came - 1, order);
    const std::string held = order == RowOrder::in_place ? "gather" : "payload";
    expect_error(rank, "a replay into a row too few", ErrorKind::invalid_argument,
                 {std::to_string(came) + " rows", held + " holds " + std::to_string(came - 1)},
                 [&] { exchange.dispatch(round.in, small.out); });
    small.check_untouched(rank);
  }
  run_dispatch(exchange, round, Form::one_call);
  round.check_rows();
}

// A dispatch with a handle knows its counts from the handle, and combines with handles come between its halves.
void handles(const Target& target, RowOrder order) {
  ScenarioSettings settings = fitted(target, settings_for("fp8_block128", order));
  settings.options.short_handles = order == RowOrder::by_expert || order == RowOrder::by_source;
  const Scenario first = make_scenario(settings);
  const Scenario other = with_other_tokens(first, settings, 7);
  with_counts(target, settings, [&](World& world) {
    if (!world.capabilities().handles) throw Skipped("the exchanges of this world have no handles");
    Exchange exchange(world, settings.shape, settings.options);
    RankRound round(first, world.rank());
    exchange.dispatch_async(round.in);
    const RowCounts counts = exchange.wait_for_counts();
    check_counts(first, world.rank(), counts);
    const RowLayout& layout = exchange.layout();
    HandleMemory handle(settings.options.short_handles ? layout.short_handle_bytes(round.in.tokens.shape[0], counts)
                                                       : layout.handle_bytes);
    round.out.handle = handle.tensor();
    exchange.dispatch_wait(round.out);
    for (int repeat = 0; repeat < 2; ++repeat) {
      RankRound replay(other, world.rank());
      replay.in = input_with(replay, handle);
      exchange.dispatch_async(replay.in);
      check_counts(other, world.rank(), exchange.wait_for_counts());
      RankRound back(first, world.rank());
      back.combine_in.src_info = {};
      exchange.combine(combine_input_with(back, handle), back.combine_out);
      back.check_tokens();
      check_counts(other, world.rank(), exchange.wait_for_counts());
      exchange.dispatch_wait(replay.out);
      if (order == RowOrder::in_place) replay.read_slots(exchange.arrival_slots());
      replay.check_rows();
    }
    if (!must_ask(world)) replay_too_small(exchange, other, order, handle);
  });
}

// Outputs with one row less than came: nothing is written, and dispatch_wait takes larger ones.
void too_small(const Target& target, RowOrder order) {
  ScenarioSettings settings = settings_for("bf16", order, "uniform");
  const Scenario exact = make_scenario(settings);
  with_counts(target, settings, [&](World& world) {
    const int rank = world.rank();
    Exchange exchange(world, settings.shape, settings.options);
    const auto came = static_cast<std::int64_t>(exact.rows[static_cast<std::size_t>(rank)].rows.size());
    for (const Form form : {Form::split, Form::one_call}) {
      if (form == Form::one_call && must_ask(world)) continue;
      RankRound round(exact, rank);
      const Outputs small(exchange, came - 1, order);
      if (form == Form::split) exchange.dispatch_async(round.in);
      if (must_ask(world)) exchange.wait_for_counts();
      for (int again = 0; again < 2; ++again)
        expect_error(rank, "outputs with a row too few", ErrorKind::invalid_argument,
                     {"holds " + std::to_string(came - 1) + " rows", std::to_string(came) + " came", "row_capacity",
                      "dispatch_wait"},
                     [&] {
                       if (form == Form::split || again == 1) return exchange.dispatch_wait(small.out);
                       exchange.dispatch(round.in, small.out);
                     });
      small.check_untouched(rank);
      exchange.dispatch_wait(round.out);
      if (order == RowOrder::in_place) round.read_slots(exchange.arrival_slots());
      round.check_rows();
      run_combine(exchange, round, form);
      round.check_tokens();
    }
  });
}

// Where nothing came, outputs of no bytes need no memory.
void nothing_came(const Target& target) {
  const ScenarioSettings settings = settings_for("bf16", RowOrder::by_expert, "no_tokens");
  const Scenario scenario = make_scenario(settings);
  with_counts(target, settings, [&](World& world) {
    Exchange exchange(world, settings.shape, settings.options);
    RankRound round(scenario, world.rank());
    exchange.dispatch_async(round.in);
    expect_equal(world.rank(), "rows", 0, static_cast<std::uint64_t>(exchange.wait_for_counts().rows));
    round.out.payload.data = round.out.src_info.data = nullptr;
    round.combine_in.rows.data = nullptr;
    round.combine_in.src_info = {};
    exchange.dispatch_wait(round.out);
    round.check_rows();
    run_combine(exchange, round, Form::split);
  });
}

void wrong_order(const Target& target) {
  ScenarioSettings settings = settings_for("bf16", RowOrder::by_expert);
  settings.exact_rows = false;
  const Scenario scenario = make_scenario(settings);
  with_counts(target, settings, [&](World& world) {
    const int rank = world.rank();
    Exchange exchange(world, settings.shape, settings.options);
    const auto refused = [&](const char* place) {
      expect_error(rank, place, ErrorKind::out_of_order, {"wait_for_counts", "dispatch_async"},
                   [&] { exchange.wait_for_counts(); });
    };
    refused("before any dispatch");
    RankRound round(scenario, rank);
    exchange.dispatch(round.in, round.out);
    refused("after a whole dispatch");
    exchange.combine_async(round.combine_in);
    refused("between the halves of a combine");
    exchange.combine_wait(round.combine_out);
    exchange.dispatch_async(round.in);
    exchange.wait_for_counts();
    exchange.dispatch_wait(round.out);
    refused("after dispatch_wait");
    exchange.combine(round.combine_in, round.combine_out);
    round.check_tokens();
  });
}

// Outputs for the worst case are always taken. Smaller ones are refused before anything moves if the caller had to ask
// what came and did not. A backend that does not answer refuses the question, too.
void worst_case_of(Exchange& exchange, const Scenario& scenario, RowOrder order, bool may_ask) {
  const int rank = exchange.rank();
  const bool in_place = order == RowOrder::in_place;
  const Outputs small(exchange, exchange.layout().least_rows(order) - 1, order);
  RankRound round(scenario, rank);
  expect_error(rank, "a row less than the worst case", ErrorKind::invalid_argument,
               {in_place ? "gather" : "payload", std::to_string(exchange.layout().min_row_capacity)},
               [&] { exchange.dispatch(round.in, small.out); });
  small.check_untouched(rank);
  exchange.dispatch_async(round.in);
  if (!may_ask)
    expect_error(rank, "wait_for_counts", ErrorKind::unsupported, {"wait_for_counts", "min_row_capacity"},
                 [&] { exchange.wait_for_counts(); });
  exchange.dispatch_wait(round.out);
  if (in_place) round.read_slots(exchange.arrival_slots());
  round.check_rows();
  run_combine(exchange, round, Form::split);
  round.check_tokens();
}

void worst_case(const Target& target) {
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::in_place}) {
    ScenarioSettings settings = settings_for("bf16", order);
    settings.exact_rows = false;
    const Scenario scenario = make_scenario(settings);
    on_ranks(target, settings.shape.ranks, "outputs for the worst case", [&](World& world) {
      require_orders(world, settings);
      Exchange exchange(world, settings.shape, settings.options);
      if (world.capabilities().row_counts) return run_round(exchange, scenario, Form::split);
      worst_case_of(exchange, scenario, order, world.capabilities().asked_counts);
    });
  }
}

}  // namespace

void add_size_cases(Cases& cases) {
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::padded, RowOrder::by_source, RowOrder::in_place}) {
    const auto add = [&](const char* which, const char* what, bool quick, auto run) {
      cases.push_back({std::string("sizes/") + which + "_" + to_string(order), what, quick,
                       [order, run](const Target& target) { run(target, order); }});
    };
    add("routings", "counts, and outputs that hold what came, for every routing", true, every_routing);
    add("formats", "counts, and outputs that hold what came, for every format", false, every_format);
    add("options", "the same with skip_a2a, a mask, a fused shared expert", true, options);
    add("handles", "counts of dispatches with a handle", true, handles);
    add("overflow", "counts of dispatches whose outputs have no room", true, overflowing);
    if (order != RowOrder::padded) add("too_small", "outputs with one row less than came", true, too_small);
  }
  cases.push_back({"sizes/by_counts", "counts of dispatches by counts, with and without room", true, by_counts});
  cases.push_back({"sizes/nothing", "outputs of no rows, without memory", true, nothing_came});
  cases.push_back({"sizes/wrong_order", "wait_for_counts where it is not allowed", true, wrong_order});
  cases.push_back({"sizes/worst_case",
                   "outputs for the worst case; smaller ones where the host does not learn what came", true,
                   worst_case});
}

}  // namespace ferry::conformance
