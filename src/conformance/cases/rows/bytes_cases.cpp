// Cases over formats whose bytes nobody looks at: rows of each format of the library, carried as bytes of its sizes,
// and what is refused.
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "conformance/cases/cases.h"
#include "conformance/oracle/oracle_parts.h"
#include "conformance/rounds/handle_sequence.h"
#include "conformance/rounds/rank_round.h"
#include "ferry/rows/host_rows.h"

namespace ferry::conformance {
namespace {

constexpr Shape kShape{.ranks = 3, .experts = 8, .top_k = 4, .max_tokens = 14, .hidden = 96};

ScenarioSettings settings_for(const AnyFormat& format, const Shape& shape, Reduction reduction) {
  ScenarioSettings settings;
  settings.shape = shape;
  settings.options = options_for(format.name(), reduction);
  settings.as_bytes = true;
  settings.encoded = Encoded::all;
  settings.routing = "ragged";
  settings.seed = 31;
  return settings;
}

bool may_be_bytes(const AnyFormat& format, int hidden) { return format.payload_bytes(hidden) % 16 == 0; }

// Scales at strides of their own have a kernel of their own.
void as_bytes(const Target& target, RowOrder order, Reduction reduction) {
  for (const Shape& shape : {kShape, Shape{2, 7, 1, 9, 32}, Shape{2, 30, 22, 5, 2880}})
    for (const AnyFormat& format : all_formats()) {
      if (!may_be_bytes(format, shape.hidden)) continue;
      ScenarioSettings settings = settings_for(format, shape, reduction);
      settings.options.row_orders = {RowOrder::by_expert, order};
      settings.row_orders = {order};
      settings.options.tiled_scales = format.name() == std::string("mxfp8") && shape.top_k != 22;
      settings.options.fused_shared_expert = shape.top_k == 4 && order == RowOrder::by_expert;
      settings.options.workers = 2;
      settings.token_gap = shape.top_k == 4 ? 16 : 0;
      if (order != RowOrder::in_place && format.block() != 0)
        settings.scale_form = shape.top_k == 1 ? ScaleForm::rows : ScaleForm::none;
      for (const Form form : {Form::split, Form::one_call}) run_scenario(target, settings, form);
    }
}

// A few formats in each order, for targets that are slow.
void few_as_bytes(const Target& target) {
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place})
    for (const char* name : {"fp8_block128", "mxfp4", "nvfp4"}) {
      ScenarioSettings settings =
          settings_for(format_named(name), {.ranks = 2, .experts = 5, .top_k = 2, .max_tokens = 4, .hidden = 64},
                       Reduction::by_rank);
      settings.options.row_orders = {RowOrder::by_expert, order};
      settings.row_orders = {order};
      settings.routing = "uniform";
      run_scenario(target, settings, order == RowOrder::padded ? Form::split : Form::one_call);
    }
}

// Rows of several sizes on one exchange, replayed by handles in any of them.
void handles(const Target& target, Reduction reduction, std::uint64_t seed) {
  const Shape shape{.ranks = 3, .experts = 7, .top_k = 3, .max_tokens = 6, .hidden = 64};
  ScenarioSettings base = settings_for(format_named("mxfp4"), shape, reduction);
  base.options.expert_alignment = 4;
  for (const char* name : {"bf16", "fp8_block128", "mxfp8"})
    base.options.more_formats.push_back({.format = format_named(name), .expert_alignment = 4});
  std::vector<ScenarioSettings> formats;
  for (int format = 0; format <= static_cast<int>(base.options.more_formats.size()); ++format) {
    ScenarioSettings settings = base;
    settings.format = format;
    settings.options = options_in(base.options, format);
    formats.push_back(settings);
  }
  const HandleSequence sequence = make_handle_sequence(formats, seed, 16);
  on_ranks(target, shape.ranks, "handles and rows of several sizes", [&](World& world) {
    if (!world.capabilities().handles) throw Skipped("the exchanges of this world have no handles");
    std::vector<Exchange> exchange;
    exchange.emplace_back(world, shape, exchange_options(formats[0]));
    run_handle_sequence(exchange, sequence);
  });
}

// What a rank gives: random bytes, but no id twice.
struct GivenBytes {
  GivenBytes(const Shape& shape, const AnyFormat& format, int rank)
      : tokens(1 + (rank + 1) % shape.max_tokens),
        payload_bytes(format.payload_bytes(shape.hidden)),
        scale_columns(static_cast<std::size_t>(scales_per_row(format, shape.hidden))),
        scale_bytes(static_cast<std::size_t>(format.scale_bytes())) {
    std::mt19937 engine(static_cast<unsigned>(rank) + 90);
    const auto fill = [&](std::vector<std::byte>& bytes, std::size_t count) {
      bytes.resize(count);
      for (std::byte& each : bytes) each = static_cast<std::byte>(engine());
    };
    const auto n = static_cast<std::size_t>(tokens);
    fill(payload, n * payload_bytes);
    fill(scales, n * scale_columns * scale_bytes);
    for (std::size_t token = 0; token < n; ++token)
      for (int k = 0; k < shape.top_k; ++k)
        ids.push_back((static_cast<std::int32_t>(token) * 3 + rank + k) % shape.experts);
  }
  DispatchInput input(const Shape& shape, const RowLayout& layout) const {
    DispatchInput in;
    in.tokens = ConstTensor(payload.data(), DType::u8, {tokens, static_cast<std::int64_t>(payload_bytes)});
    in.topk_ids = ConstTensor(ids.data(), DType::i32, {tokens, shape.top_k});
    if (scale_columns != 0)
      in.token_scales =
          ConstTensor(scales.data(), layout.scale_dtype, {tokens, static_cast<std::int64_t>(scale_columns)});
    return in;
  }

  int tokens;
  std::size_t payload_bytes, scale_columns, scale_bytes;
  std::vector<std::byte> payload, scales;
  std::vector<std::int32_t> ids;
};

// Rows by_expert lie by expert, source, token and k: the oracle is these loops.
void check_own_rows(const World& world, const Shape& shape, const AnyFormat& format, const HostRows& rows,
                    const RowLayout& layout) {
  const DispatchOutput& out = rows.arrivals();
  std::vector<GivenBytes> given;
  for (int rank = 0; rank < shape.ranks; ++rank) given.emplace_back(shape, format, rank);
  const int first = first_expert(shape, world.rank());
  for (int local = 0; local < layout.groups; ++local) {
    std::int64_t row = rows.begin_row(local);
    test::ScaleGroup group{.first = row, .tile = row / 128, .begin = row, .column_step = rows.row_capacity()};
    if (layout.scale_layout == ScaleLayout::tiled) group.tile += out.scales_offsets.as<std::uint32_t>()[local];
    for (const GivenBytes& of : given)
      for (std::size_t at = 0; at < of.ids.size(); ++at) {
        if (of.ids[at] != first + local) continue;
        const std::size_t token = at / static_cast<std::size_t>(shape.top_k);
        const std::string place = std::string(format.name()) + ", row " + std::to_string(row);
        const auto same = [](const std::byte* a, const std::byte* b, std::size_t bytes) {
          return std::memcmp(a, b, bytes) == 0;
        };
        if (!same(out.payload.as<std::byte>() + row * layout.payload_row_bytes,
                  of.payload.data() + token * of.payload_bytes, of.payload_bytes))
          throw Failure(world.rank(), place, "the payload that was given", "another one");
        for (std::size_t column = 0; column < of.scale_columns; ++column) {
          const std::size_t index = test::scale_index(layout.scale_layout, group, layout.scales_per_row,
                                                      row - group.first, static_cast<int>(column));
          if (!same(out.scales.as<std::byte>() + index * of.scale_bytes,
                    of.scales.data() + (token * of.scale_columns + column) * of.scale_bytes, of.scale_bytes))
            throw Failure(world.rank(), place + ", scale " + std::to_string(column), "that which was given",
                          "another one");
        }
        ++row;
      }
    expect_equal(world.rank(), "rows of a group", static_cast<std::uint64_t>(row),
                 static_cast<std::uint64_t>(rows.end_row(local)));
  }
}

// Sizes that no format of the library has, beside a hidden that is much smaller or larger.
void own_sizes(const Target& target) {
  using enum ScaleLayout;
  const BytesRow sizes[] = {{.payload_bytes = 16},
                            {.payload_bytes = 4096, .scales_per_row = 1},
                            {.payload_bytes = 48, .scales_per_row = 3, .scale_bytes = 2},
                            {.payload_bytes = 64, .scales_per_row = 5, .scale_layout = transposed},
                            {.payload_bytes = 48, .scales_per_row = 7, .scale_bytes = 1, .scale_layout = transposed},
                            {.payload_bytes = 80, .scales_per_row = 6, .scale_bytes = 1, .scale_layout = tiled},
                            {.payload_bytes = 32, .scales_per_row = 300, .scale_bytes = 1},
                            {.payload_bytes = 1040, .scales_per_row = 33, .scale_layout = transposed}};
  const Shape shape{.ranks = 3, .experts = 7, .top_k = 2, .max_tokens = 9, .hidden = 64};
  on_ranks(target, shape.ranks, "rows of sizes of their own", [&](World& world) {
    ExchangeOptions options = options_for("bf16");
    options.expert_alignment = 1;
    for (const BytesRow& row : sizes) options.more_formats.push_back({.format = bytes_format(row)});
    Exchange exchange(world, shape, options);
    for (int round = 0; round < 2; ++round)  // both copies of the slots
      for (int format = 1; format <= static_cast<int>(std::size(sizes)); ++format) {
        HostRows rows(exchange, format);
        const GivenBytes given(shape, exchange.format(format), world.rank());
        DispatchInput in = given.input(shape, exchange.layout(format));
        in.format = format;
        exchange.dispatch(in, rows.arrivals());
        check_own_rows(world, shape, exchange.format(format), rows, exchange.layout(format));
      }
  });
}

void refused(const Target& target) {
  ScenarioSettings settings = settings_for(format_named("fp8_block128"), kShape, Reduction::by_rank);
  const Scenario scenario = make_scenario(settings);
  settings.encoded = Encoded::nobody;
  const Scenario in_bf16 = make_scenario(settings);
  on_ranks(target, kShape.ranks, "bytes that are refused", [&](World& world) {
    const int rank = world.rank();
    ExchangeOptions bad = exchange_options(scenario.settings);
    bad.result_format = bad.format;
    expect_error(rank, "results", ErrorKind::invalid_argument, {"result_format", bad.format.name(), "never looked at"},
                 [&] { Exchange(world, kShape, bad); });
    bad = exchange_options(scenario.settings);
    bad.tiled_scales = true;
    expect_error(rank, "tiles by an option", ErrorKind::invalid_argument, {"tiled_scales", bad.format.name()},
                 [&] { Exchange(world, kShape, bad); });
    bad = exchange_options(scenario.settings);
    if (rank == 1) bad.format = bytes_format({.payload_bytes = 112, .scales_per_row = 1});
    expect_error(rank, "other sizes on one rank", ErrorKind::invalid_argument,
                 {"format", "bytes_96_1x4_transposed", "bytes_112_1x4"}, [&] { Exchange(world, kShape, bad); });

    Exchange exchange(world, kShape, exchange_options(scenario.settings));
    RankRound values(in_bf16, rank), round(scenario, rank);
    expect_error(rank, "values", ErrorKind::invalid_argument, {"tokens", "bf16", "bytes_96_1x4_transposed", "u8", "96"},
                 [&] { exchange.dispatch_async(values.in); });
    round.in.token_scales = {};
    expect_error(rank, "no scales", ErrorKind::invalid_argument, {"token_scales", "not given"},
                 [&] { exchange.dispatch_async(round.in); });
    run_round(exchange, scenario, Form::one_call);
  });
}

}  // namespace

void add_bytes_cases(Cases& cases) {
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place})
    for (const Reduction reduction : {Reduction::by_rank, Reduction::either})
      cases.push_back({std::string("bytes/") + to_string(order) + "_" + to_string(reduction),
                       "rows that nobody looks at come as those of the format in which they were encoded", false,
                       [=](const Target& target) { as_bytes(target, order, reduction); }});
  cases.push_back({"bytes/few", "the same of a few formats", true, few_as_bytes});
  for (const std::uint64_t seed : {1u, 2u})
    cases.push_back(
        {"bytes/handles_" + std::to_string(seed), "handles and rows of several sizes", seed == 1,
         [seed](const Target& target) { handles(target, seed == 1 ? Reduction::by_rank : Reduction::exact, seed); }});
  cases.push_back({"bytes/own_sizes", "rows and scales of sizes that no format has", true, own_sizes});
  cases.push_back({"bytes/refused", "values, missing scales, results, sizes that differ between ranks", true, refused});
}

}  // namespace ferry::conformance
