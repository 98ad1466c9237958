// Cases over exchanges with several formats: dispatches that take one after another, handles that pass from one format
// to another, and what is refused.
#include <span>
#include <string>
#include <vector>

#include "conformance/cases/cases.h"
#include "conformance/rounds/handle_sequence.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {
namespace {

constexpr Shape kShape{.ranks = 3, .experts = 10, .top_k = 4, .max_tokens = 12, .hidden = 64};

DispatchFormat format_of(const char* name, int alignment = 0) {
  DispatchFormat format;
  format.format = format_named(name);
  format.expert_alignment = alignment;
  return format;
}

std::vector<DispatchFormat> further_formats(int alignment) {
  const int other = alignment == 0 ? 16 : alignment;
  std::vector<DispatchFormat> formats{format_of("fp8_block128", alignment), format_of("mxfp8", other),
                                      format_of("bf16", alignment), format_of("mxfp4", other)};
  formats[1].tiled_scales = true;
  return formats;
}

// The settings of dispatches in each format. The own one, nvfp4, is neither the largest nor the smallest.
std::vector<ScenarioSettings> in_each_format(const Shape& shape, Reduction reduction, RowOrder order, int alignment,
                                             const std::vector<DispatchFormat>& further) {
  ScenarioSettings base;
  base.shape = shape;
  base.options = options_for("nvfp4", reduction);
  base.options.expert_alignment = alignment;
  base.options.row_orders = {RowOrder::by_expert, RowOrder::padded, RowOrder::in_place};
  if (reduction == Reduction::by_rank && order == RowOrder::by_source) base.options.row_orders = {order};
  base.options.workers = 2;
  base.row_orders = {order};
  base.routing = "ragged";
  base.options.more_formats = further;
  std::vector<ScenarioSettings> all;
  for (int format = 0; format <= static_cast<int>(base.options.more_formats.size()); ++format) {
    ScenarioSettings settings = base;
    settings.format = format;
    settings.options = exchange_options(settings);  // the exchange's own and this one have changed places
    settings.seed = 50 + static_cast<std::uint64_t>(format);
    if (settings.options.format.name() == std::string("nvfp4")) settings.input_scale = 37.5f;
    all.push_back(settings);
  }
  return all;
}

std::vector<ScenarioSettings> in_each_format(const Shape& shape, Reduction reduction, RowOrder order, int alignment) {
  return in_each_format(shape, reduction, order, alignment, further_formats(alignment));
}

// One exchange; `order`: of its formats.
void rounds_in_turn(const Target& target, const std::vector<ScenarioSettings>& formats, std::span<const Form> forms,
                    const std::vector<std::size_t>& order) {
  std::vector<Scenario> scenarios;
  for (const ScenarioSettings& each : formats) scenarios.push_back(make_scenario(each));
  const Shape& shape = formats[0].shape;
  on_ranks(target, shape.ranks, "formats in turn, " + describe(formats[0]), [&](World& world) {
    require_orders(world, formats[0]);
    Exchange exchange(world, shape, exchange_options(formats[0]));
    for (const Form form : forms)
      for (const std::size_t format : order) run_round(exchange, scenarios[format], form);
  });
}

void in_turn(const Target& target, Reduction reduction, RowOrder order) {
  constexpr Form kForms[] = {Form::split, Form::one_call};
  for (const Shape& shape : {kShape, Shape{2, 7, 1, 9, 2880}, Shape{4, 25, 22, 5, 32}})
    rounds_in_turn(target, in_each_format(shape, reduction, order, 0), kForms, {0, 4, 1, 1, 3, 2, 0, 3, 4, 2});
}

// The formats of slow targets.
void few_in_turn(const Target& target, RowOrder order) {
  constexpr Form kForms[] = {Form::one_call};
  const std::vector<DispatchFormat> further{format_of("fp8_block128", 16), format_of("bf16")};
  rounds_in_turn(target,
                 in_each_format({.ranks = 2, .experts = 5, .top_k = 2, .max_tokens = 4, .hidden = 64},
                                Reduction::by_rank, order, 0, further),
                 kForms, {0, 2, 1, 1, 2, 0});
}

// Forward in FP8, back in bf16 by the same handles, on one exchange: as training does. And any sequence.
// Formats that align rows differently share handles of rows that have no alignment.
void handles(const Target& target, Reduction reduction, std::uint64_t seed, RowOrder order = RowOrder::by_expert) {
  const Shape shape{.ranks = 3, .experts = 7, .top_k = 3, .max_tokens = 6, .hidden = 64};
  const int alignment = order == RowOrder::by_expert || order == RowOrder::in_place ? 8 : 0;
  const std::vector<ScenarioSettings> formats = in_each_format(shape, reduction, order, alignment);
  const HandleSequence sequence = make_handle_sequence(formats, seed, 24);
  on_ranks(target, shape.ranks, "handles in several formats", [&](World& world) {
    if (!world.capabilities().handles) throw Skipped("the exchanges of this world have no handles");
    require_orders(world, formats[0]);
    std::vector<Exchange> exchange;
    exchange.emplace_back(world, shape, exchange_options(formats[0]));
    run_handle_sequence(exchange, sequence);
  });
}

// A handle of rows that are aligned to 16, given to dispatches in formats whose alignment divides that: rows begin
// where those of its dispatch did. Also on another exchange.
void handles_across_alignments(const Target& target, RowOrder order, Reduction reduction) {
  const Shape shape{.ranks = 3, .experts = 7, .top_k = 3, .max_tokens = 6, .hidden = 64};
  const std::vector<DispatchFormat> further{format_of("fp8_block128", 4), format_of("bf16", 1), format_of("mxfp8", 16)};
  const std::vector<ScenarioSettings> formats = in_each_format(shape, reduction, order, 16, further);
  const Scenario first = make_scenario(formats[0]);
  std::vector<Scenario> again;
  for (const ScenarioSettings& each : formats) {
    ScenarioSettings settings = each;
    settings.options.expert_alignment = 16;  // of the handle
    again.push_back(with_other_tokens(first, settings, 60 + static_cast<std::uint64_t>(settings.format)));
    settings.exact_rows = true;
    again.push_back(with_other_tokens(first, settings, 70 + static_cast<std::uint64_t>(settings.format)));
  }
  ScenarioSettings alone = formats[2];
  alone.options.more_formats.clear();
  alone.format = 0;
  ScenarioSettings of_handle = alone;
  of_handle.options.expert_alignment = 16;
  const Scenario elsewhere = with_other_tokens(first, of_handle, 80);
  on_ranks(target, shape.ranks, "handles across alignments", [&](World& world) {
    if (!world.capabilities().handles) throw Skipped("the exchanges of this world have no handles");
    require_orders(world, formats[0]);
    const int rank = world.rank();
    Exchange exchange(world, shape, exchange_options(formats[0])), other(world, shape, alone.options);
    HandleMemory handle(exchange), left(exchange);
    RankRound kept(first, rank);
    kept.out.handle = handle.tensor();
    run_dispatch(exchange, kept, Form::one_call);
    kept.check_rows();
    const auto replay = [&](Exchange& with, const Scenario& scenario, Form form) {
      RankRound round(scenario, rank);
      round.in = input_with(round, handle);
      round.out.handle = left.tensor();
      if (scenario.settings.exact_rows) {
        with.dispatch_async(round.in);
        expect_equal(rank, "rows of a replay", scenario.row_capacity[static_cast<std::size_t>(rank)],
                     with.wait_for_counts().rows);
        with.dispatch_wait(round.out);
      } else {
        run_dispatch(with, round, form);
      }
      if (order == RowOrder::in_place) round.read_slots(with.arrival_slots(round.in.format));
      round.check_rows();
      round.combine_in.src_info = {};
      round.combine_in = combine_input_with(round, left);
      run_combine(with, round, form);
      round.check_tokens();
      handle.bytes().swap(left.bytes());  // the next one has the handle that this one left
    };
    for (const Form form : {Form::split, Form::one_call})
      for (const Scenario& each : again) replay(exchange, each, form);
    replay(other, elsewhere, Form::one_call);
  });
}

// What ranks and experts have received counts the bytes of each format.
void statistics(const Target& target) {
  const std::vector<ScenarioSettings> formats = in_each_format(kShape, Reduction::by_rank, RowOrder::by_expert, 0);
  std::vector<Scenario> scenarios;
  for (const ScenarioSettings& each : formats) scenarios.push_back(make_scenario(each));
  on_ranks(target, kShape.ranks, "statistics of several formats", [&](World& world) {
    Exchange exchange(world, kShape, exchange_options(formats[0]));
    std::uint64_t tokens = 0, bytes = 0;
    for (std::size_t format = 0; format < scenarios.size(); ++format) {
      run_round(exchange, scenarios[format], Form::one_call);
      const RowLayout& layout = exchange.layout(static_cast<int>(format));
      const auto row_bytes = static_cast<std::uint64_t>(layout.payload_row_bytes) +
                             static_cast<std::uint64_t>(layout.scales_per_row) *
                                 static_cast<std::uint64_t>(scenarios[format].settings.options.format.scale_bytes());
      std::uint64_t rows = 0;
      for (const test::RowOrigin& row : scenarios[format].rows[static_cast<std::size_t>(world.rank())].rows)
        rows += test::is_padding(row) ? 0 : 1;
      tokens += rows;
      bytes += rows * row_bytes;
    }
    const Stats stats = exchange.stats();
    std::uint64_t tokens_seen = 0, bytes_seen = 0;
    for (const ExpertTraffic& each : stats.received) {
      tokens_seen += each.tokens;
      bytes_seen += each.bytes;
    }
    expect_equal(world.rank(), "stats().received, tokens", tokens, tokens_seen);
    expect_equal(world.rank(), "stats().received, bytes", bytes, bytes_seen);
  });
}

void refused(const Target& target) {
  const std::vector<ScenarioSettings> formats = in_each_format(kShape, Reduction::by_rank, RowOrder::by_expert, 0);
  const Scenario nvfp4 = make_scenario(formats[0]);
  const Scenario mxfp8 = make_scenario(formats[2]);
  on_ranks(target, kShape.ranks, "formats that are refused", [&](World& world) {
    const int rank = world.rank();
    ExchangeOptions bad = exchange_options(formats[0]);
    bad.more_formats[0].tiled_scales = true;
    expect_error(rank, "tiles of fp8_block128", ErrorKind::invalid_argument, {"more_formats[0]", "tiled_scales"},
                 [&] { const Exchange exchange(world, kShape, bad); });
    bad = exchange_options(formats[0]);
    bad.more_formats.resize(kMostFormats);
    expect_error(rank, "too many formats", ErrorKind::invalid_argument, {"more_formats", "16"},
                 [&] { const Exchange exchange(world, kShape, bad); });
    bad = exchange_options(formats[0]);
    if (rank == 1) bad.more_formats[2].format = format_named("mxfp6_e2m3");
    expect_error(rank, "formats that differ", ErrorKind::invalid_argument, {"more_formats[2]", "bf16", "mxfp6_e2m3"},
                 [&] { const Exchange exchange(world, kShape, bad); });
    bad = exchange_options(formats[0]);
    if (rank == 1) bad.more_formats.pop_back();
    expect_error(rank, "numbers of formats that differ", ErrorKind::invalid_argument, {"more_formats", "4", "3"},
                 [&] { const Exchange exchange(world, kShape, bad); });

    Exchange exchange(world, kShape, exchange_options(formats[0]));
    for (const int format : {-1, 5}) {
      RankRound round(nvfp4, rank);
      round.in.format = format;
      expect_error(rank, "no such format", ErrorKind::invalid_argument, {"format", std::to_string(format), "0 to 4"},
                   [&] { exchange.dispatch(round.in, round.out); });
      round.check_untouched();
    }
    RankRound round(mxfp8, rank);  // outputs of another format than the call's
    round.in.format = 0;
    expect_error(rank, "outputs of another format", ErrorKind::invalid_argument, {"payload"},
                 [&] { exchange.dispatch(round.in, round.out); });
    run_round(exchange, mxfp8, Form::split);
    run_round(exchange, nvfp4, Form::one_call);
  });
}

// All CPU ranks are told, and go on.
void differ_in_a_dispatch(const Target& target) {
  std::vector<ScenarioSettings> formats = in_each_format(kShape, Reduction::by_rank, RowOrder::by_expert, 4);
  for (ScenarioSettings& each : formats) each.routing = "uniform";
  const Scenario fp8 = make_scenario(formats[1]);
  const Scenario mxfp4 = with_other_tokens(fp8, formats[4], 9);
  on_ranks(target, kShape.ranks, "a dispatch in two formats", [&](World& world) {
    if (world.capabilities().gpus) throw Skipped("GPU ranks do not compare the formats of a dispatch");
    const int rank = world.rank();
    Exchange exchange(world, kShape, exchange_options(formats[0]));
    RankRound round(rank == 1 ? mxfp4 : fp8, rank);
    expect_error(rank, "formats that differ", ErrorKind::invalid_argument,
                 {"format is " + std::to_string(round.in.format), "on rank"},
                 [&] { exchange.dispatch(round.in, round.out); });
    run_round(exchange, fp8, Form::split);
    HandleMemory handle(exchange);
    RankRound kept(fp8, rank);
    kept.out.handle = handle.tensor();
    run_dispatch(exchange, kept, Form::one_call);
    world.barrier();  // a rank that is late in the dispatch would be told of the replay there
    RankRound replayed(rank == 1 ? mxfp4 : fp8, rank);
    expect_error(rank, "formats that differ, with a handle", ErrorKind::invalid_argument, {"another format"},
                 [&] { exchange.dispatch(input_with(replayed, handle), replayed.out); });
  });
}

}  // namespace

void add_format_cases(Cases& cases) {
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact})
    for (const RowOrder order : {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place}) {
      if (reduction == Reduction::exact && order == RowOrder::by_source) continue;
      const std::string name = std::string(to_string(order)) + "_" + to_string(reduction);
      cases.push_back({"formats/" + name, "dispatches of one exchange in one format after another",
                       order == RowOrder::by_expert,
                       [reduction, order](const Target& target) { in_turn(target, reduction, order); }});
    }
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place})
    cases.push_back({std::string("formats/few_") + to_string(order), "the same, of few tokens", true,
                     [order](const Target& target) { few_in_turn(target, order); }});
  for (std::uint64_t seed = 1; seed <= 4; ++seed)
    cases.push_back({"formats/handles_" + std::to_string(seed), "handles that pass from one format to another",
                     seed == 1, [seed](const Target& target) {
                       handles(target, seed % 2 == 0 ? Reduction::exact : Reduction::by_rank, seed);
                     }});
  for (const RowOrder order : {RowOrder::padded, RowOrder::by_source})
    cases.push_back({std::string("formats/handles_") + to_string(order), "the same, of rows without alignment", true,
                     [order](const Target& target) { handles(target, Reduction::by_rank, 5, order); }});
  cases.push_back({"formats/handles_in_place", "the same, where rows stay in their slots", true,
                   [](const Target& target) { handles(target, Reduction::by_rank, 6, RowOrder::in_place); }});
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::in_place})
    for (const Reduction reduction : {Reduction::by_rank, Reduction::exact})
      cases.push_back(
          {std::string("formats/aligned_handles_") + to_string(order) + "_" + to_string(reduction),
           "handles of rows that another format aligns less", true,
           [order, reduction](const Target& target) { handles_across_alignments(target, order, reduction); }});
  cases.push_back({"formats/statistics", "bytes of each format are counted", true, statistics});
  cases.push_back({"formats/refused", "formats that an exchange cannot have or does not have", true, refused});
  cases.push_back({"formats/differ", "ranks that take different formats are told so", true, differ_in_a_dispatch});
}

}  // namespace ferry::conformance
