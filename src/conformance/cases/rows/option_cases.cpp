// Cases over the options of an exchange and what a call may be given: hooks, dtypes, strides, alignment, fused shared
// expert, skip_a2a, workers, non-finite tokens.
#include <limits>

#include "conformance/cases/cases.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {
namespace {

constexpr Shape kShape{.ranks = 3, .experts = 8, .top_k = 4, .max_tokens = 14, .hidden = 96};
constexpr Reduction kReductions[] = {Reduction::by_rank, Reduction::exact};

ScenarioSettings settings_for(const char* format, Reduction reduction) {
  ScenarioSettings settings;
  settings.shape = kShape;
  settings.options = options_for(format, reduction);
  settings.routing = "ragged";
  settings.seed = 21;
  return settings;
}

// Runs with both reductions after `change` has set what the case is about.
void both(const Target& target, const char* format, const std::function<void(ScenarioSettings&)>& change) {
  for (const Reduction reduction : kReductions) {
    ScenarioSettings settings = settings_for(format, reduction);
    change(settings);
    run_scenario(target, settings, reduction == Reduction::exact ? Form::split : Form::one_call);
  }
}

void weights(const Target& target) {
  for (const WeightForm form : {WeightForm::none, WeightForm::array, WeightForm::hook})
    both(target, "bf16", [form](ScenarioSettings& s) { s.weights = form; });
}

void narrow_weights(const Target& target) {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const Shape& shape : {kShape, Shape{2, 7, 1, 9, 32}, Shape{4, 30, 22, 5, 2880}})
      for (const char* routing : {"ragged", "no_tokens", "one_rank"})
        both(target, "bf16", [&](ScenarioSettings& s) {
          s.shape = shape;
          s.routing = routing;
          s.weight_dtype = dtype;
          s.options.workers = 2;
        });
}

void epilogue(const Target& target) {
  for (const int workers : {1, 3})
    both(target, "mxfp8", [workers](ScenarioSettings& s) {
      s.epilogue = true;
      s.options.workers = workers;
      s.options.fused_shared_expert = workers == 3;
    });
}

void bias(const Target& target) {
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const int count : {1, 2})
      both(target, "fp8_block128", [=](ScenarioSettings& s) {
        s.num_bias = count;
        s.bias_dtype = dtype;
        s.row_dtype = count == 1 ? DType::bf16 : DType::f32;
        s.output_dtype = dtype;
        s.output_gap = count == 1 ? 0 : 8;
        s.options.fused_shared_expert = count == 2;
        s.epilogue = count == 2 && dtype == DType::f32;
      });
}

void result_formats(const Target& target) {
  for (const AnyFormat& format : ferry::result_formats())
    both(target, "mxfp8", [&](ScenarioSettings& s) {
      s.options.result_format = format;
      s.options.workers = 2;
      s.row_dtype = format.block() == 0 ? DType::bf16 : DType::f32;
      s.output_dtype = DType::f32;
      s.options.fused_shared_expert = s.options.reduction == Reduction::by_rank;
      s.unreduced = format.block() == 16 && s.options.reduction == Reduction::exact;
      if (s.unreduced) s.weights = WeightForm::none;
    });
}

// Weights that only travel, and the other order of a sum.
void sums(const Target& target) {
  for (const int biases : {0, 2}) {
    ScenarioSettings settings = settings_for("bf16", Reduction::by_rank);
    settings.sum_order = SumOrder::by_last_k;
    settings.num_bias = biases;
    settings.output_dtype = DType::f32;
    settings.applies_weights = biases == 0;
    run_scenario(target, settings);
  }
}

void unreduced(const Target& target) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const char* routing : {"ragged", "some_none", "none"}) {
      ScenarioSettings settings = settings_for("fp8_block128", Reduction::exact);
      settings.weights = WeightForm::none;
      settings.unreduced = true;
      settings.output_dtype = dtype;
      settings.routing = routing;
      run_scenario(target, settings);
    }
  }
}

void input_scale(const Target& target) {
  for (const float scale : {0.125f, 1.0f, 37.5f, 3000.0f})
    both(target, "nvfp4", [scale](ScenarioSettings& s) { s.input_scale = scale; });
}

// nvfp4 with a global scale for each token; some tokens come encoded.
void dynamic_scales_of(const Target& target, std::initializer_list<RowOrder> orders) {
  for (const RowOrder order : orders)
    for (const Shape& shape : {kShape, Shape{2, 7, 1, 9, 32}, Shape{4, 30, 22, 5, 2880}})
      for (const Encoded encoded : {Encoded::nobody, Encoded::odd_ranks}) {
        ScenarioSettings s = settings_for("nvfp4", Reduction::by_rank);
        s.shape = shape;
        s.options.dynamic_scales = true;
        s.options.expert_alignment = 4;
        s.options.workers = 2;
        s.options.row_orders = {RowOrder::by_expert, RowOrder::padded, RowOrder::in_place};
        if (order == RowOrder::by_source) s.options.row_orders = {RowOrder::by_source};
        s.options.fused_shared_expert = order == RowOrder::by_expert || order == RowOrder::padded;
        s.row_orders = {order};
        s.encoded = encoded;
        s.token_dtype = encoded == Encoded::nobody ? DType::f32 : DType::bf16;
        s.global_scale_dtype = encoded == Encoded::nobody ? DType::f32 : DType::bf16;
        s.routing = shape.top_k == 1 ? "one_rank" : shape.top_k == 22 ? "some_none" : "ragged";
        run_scenario(target, s, encoded == Encoded::nobody ? Form::split : Form::one_call);
        s.routing = "no_tokens";
        run_scenario(target, s);
      }
}

void dynamic_scales(const Target& target) {
  dynamic_scales_of(target, {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded});
}
void dynamic_scales_in_place(const Target& target) { dynamic_scales_of(target, {RowOrder::in_place}); }

void dynamic_scales_refused(const Target& target) {
  ScenarioSettings settings = settings_for("nvfp4", Reduction::by_rank);
  settings.options.dynamic_scales = true;
  settings.routing = "uniform";
  const Scenario scenario = make_scenario(settings);
  on_ranks(target, kShape.ranks, "dynamic scales that are refused", [&](World& world) {
    const int rank = world.rank();
    if (!world.capabilities().dynamic_scales) {
      return expect_error(rank, "dynamic_scales", ErrorKind::unsupported, {"dynamic_scales"},
                          [&] { const Exchange exchange(world, kShape, settings.options); });
    }
    ExchangeOptions other = settings.options;
    other.format = format_named("mxfp4");
    expect_error(rank, "dynamic scales of another format", ErrorKind::invalid_argument, {"dynamic_scales", "mxfp4"},
                 [&] { const Exchange exchange(world, kShape, other); });
    Exchange exchange(world, kShape, settings.options);
    const auto refuse = [&](const char* what, const std::vector<std::string>& fragments,
                            const std::function<void(RankRound&)>& spoil) {
      RankRound round(scenario, rank);
      spoil(round);
      expect_error(rank, what, ErrorKind::invalid_argument, fragments, [&] { exchange.dispatch(round.in, round.out); });
      round.check_untouched();
    };
    const float scale = 2.0f;
    refuse("an input scale", {"input_scale", "dynamic_scales"}, [&](RankRound& r) { r.in.input_scale = &scale; });
    refuse("no global_scales", {"global_scales", "not given"}, [](RankRound& r) { r.out.global_scales = {}; });
    refuse("global_scales too short", {"global_scales", "1"}, [](RankRound& r) { r.out.global_scales.shape[0] = 1; });
    refuse("global_scales of another dtype", {"global_scales", "f16"},
           [](RankRound& r) { r.out.global_scales.dtype = DType::f16; });
    refuse("scales of tokens that are not encoded", {"token_global_scales"},
           [&](RankRound& r) { r.in.token_global_scales = ConstTensor(&scale, DType::f32, {1}); });
    run_round(exchange, scenario, Form::split);
  });
}

void dtypes(const Target& target) {
  for (const char* format : {"bf16", "mxfp6_e3m2", "fp8_block128_ue8m0"})
    for (const DType tokens : {DType::bf16, DType::f16, DType::f32})
      for (const DType rows : {DType::bf16, DType::f32})
        both(target, format, [=](ScenarioSettings& s) {
          s.token_dtype = tokens;
          s.row_dtype = rows;
          s.output_dtype = rows;
          s.id_dtype = tokens == DType::f32 ? DType::i64 : DType::i32;
        });
}

// f16 rows, bias and sums, also beside other types.
void f16_sums(const Target& target) {
  for (const DType rows : {DType::f16, DType::f32, DType::bf16})
    for (const DType sums : {DType::f16, DType::bf16, DType::f32})
      for (const Shape& shape : {kShape, Shape{2, 7, 1, 9, 32}, Shape{4, 30, 22, 5, 2880}})
        both(target, "bf16", [&](ScenarioSettings& s) {
          s.shape = shape;
          s.row_dtype = rows;
          s.output_dtype = sums;
          s.bias_dtype = DType::f16;
          s.num_bias = shape.top_k == 1 ? 0 : 2;
          s.row_gap = s.output_gap = shape.top_k == 1 ? 3 : 0;
          s.options.fused_shared_expert = shape.top_k == 4;
          s.options.workers = 2;
          s.routing = shape.top_k == 22 ? "one_rank" : "ragged";
          s.unreduced = shape.top_k == 1 && s.options.reduction == Reduction::exact;
          if (s.unreduced) s.weights = WeightForm::none;
          if (s.unreduced) s.output_gap = 0;
        });
}

void encoded_tokens(const Target& target) {
  for (const AnyFormat& format : all_formats())
    for (const Encoded encoded : {Encoded::odd_ranks, Encoded::all})
      both(target, format.name(), [&](ScenarioSettings& s) {
        s.encoded = encoded;
        s.token_gap = encoded == Encoded::all ? 0 : 3;
        s.input_scale = format.name() == std::string("nvfp4") ? 37.5f : 1.0f;
        s.options.tiled_scales = format.name() == std::string("mxfp8") && encoded == Encoded::all;
        s.options.fused_shared_expert = encoded == Encoded::all;
        s.options.workers = encoded == Encoded::all ? 2 : 1;
      });
}

void strides(const Target& target) {
  for (const DType dtype : {DType::bf16, DType::f32})
    both(target, "mxfp4", [dtype](ScenarioSettings& s) {
      s.token_dtype = s.row_dtype = s.output_dtype = dtype;
      s.token_gap = 7;
      s.row_gap = 3;
      s.output_gap = 13;
    });
}

void alignment(const Target& target, int rows) {
  for (const AnyFormat& format : all_formats())
    both(target, format.name(), [&](ScenarioSettings& s) {
      s.options.expert_alignment = rows;
      s.options.tiled_scales = format.name() == std::string("mxfp8") && s.options.reduction == Reduction::exact;
    });
}

void shared_expert(const Target& target) {
  for (const AnyFormat& format : all_formats())
    for (const char* routing : {"ragged", "none", "empty_ranks"})
      both(target, format.name(), [&](ScenarioSettings& s) {
        s.options.fused_shared_expert = true;
        s.options.expert_alignment = routing == std::string("ragged") ? 8 : 0;
        s.row_dtype = routing == std::string("none") ? DType::f32 : DType::bf16;
        s.routing = routing;
      });
}

void skip_a2a(const Target& target) {
  for (const char* format : {"bf16", "mxfp8", "nvfp4"}) {
    for (const bool shared : {false, true}) {
      for (const int split_over : {3, 5}) {
        both(target, format, [&](ScenarioSettings& s) {
          s.options.skip_a2a = true;
          s.options.fused_shared_expert = shared;
          s.options.allreduce_world_size = split_over;
          s.routing = "uniform";
        });
      }
    }
  }
}

void workers(const Target& target) {
  for (const int count : {1, 2, 3})
    for (const char* format : {"bf16", "nvfp4"})
      both(target, format, [count](ScenarioSettings& s) {
        s.options.workers = count;
        s.options.expert_alignment = 16;
        s.routing = "zipf";
      });
}

// Ranks may differ in it.
void different_workers(const Target& target) {
  const ScenarioSettings settings = settings_for("mxfp8", Reduction::by_rank);
  const Scenario scenario = make_scenario(settings);
  on_ranks(target, kShape.ranks, "a different number of workers on each rank", [&](World& world) {
    ExchangeOptions options = settings.options;
    options.workers = 1 + world.rank();
    Exchange exchange(world, kShape, options);
    run_round(exchange, scenario, Form::split);
    run_round(exchange, scenario, Form::one_call);
  });
}

// A NaN in the first token and an infinity in the last of every rank: encoded as the format says, counted, and the
// exchange goes on.
void non_finite(const Target& target) {
  for (const AnyFormat& format : all_formats()) {
    ScenarioSettings settings = settings_for(format.name(), Reduction::by_rank);
    settings.routing = "uniform";
    Scenario scenario = make_scenario(settings);
    const auto put = [&](test::RankInput& in, int token, int column, std::uint16_t bits) {
      const auto at = static_cast<std::size_t>(token * kShape.hidden + column) * 2;
      in.tokens[at] = static_cast<std::byte>(bits & 0xff);
      in.tokens[at + 1] = static_cast<std::byte>(bits >> 8);
    };
    for (test::RankInput& in : scenario.round.ranks) {
      put(in, 0, 5, 0x7fc0);
      put(in, in.num_tokens - 1, kShape.hidden - 1, 0xff80);
    }
    for (int rank = 0; rank < kShape.ranks; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      scenario.rows[at] = test::expected_rows(scenario.round, rank, scenario.row_capacity[at], kPoison);
    }
    on_ranks(target, kShape.ranks, std::string("non-finite tokens, ") + format.name(), [&](World& world) {
      Exchange exchange(world, kShape, settings.options);
      run_round(exchange, scenario, Form::split);
      expect_equal(world.rank(), "Stats::non_finite_blocks", 2, exchange.stats().non_finite_blocks);
    });
  }
}

}  // namespace

void add_option_cases(Cases& cases) {
  cases.push_back({"options/weights", "no weights, an array, a hook", true, weights});
  cases.push_back({"options/narrow_weights", "weights that are bf16 or f16 tensors", true, narrow_weights});
  cases.push_back({"options/epilogue", "the epilogue gets every column of every token once", true, epilogue});
  cases.push_back({"options/bias", "tensors that combine adds first", true, bias});
  cases.push_back({"options/result_formats", "results that travel in each format", true, result_formats});
  cases.push_back({"options/sums", "sums by the last k, and weights that combine leaves out", true, sums});
  cases.push_back({"options/unreduced", "exact rows without a sum, zeros where there is none", true, unreduced});
  cases.push_back({"options/input_scale", "nvfp4's input scale", true, input_scale});
  cases.push_back({"options/dynamic_scales", "nvfp4 with a global scale for each token", true, dynamic_scales});
  cases.push_back(
      {"options/dynamic_scales_in_place", "the same where rows stay in their slots", true, dynamic_scales_in_place});
  cases.push_back({"options/dynamic_scales_refused", "what does not go with them", true, dynamic_scales_refused});
  cases.push_back({"options/dtypes", "bf16, f16 and f32 tokens, int64 ids, f32 rows and output", false, dtypes});
  cases.push_back({"options/f16_sums", "rows, bias and sums that are float16", true, f16_sums});
  cases.push_back({"options/encoded_tokens",
                   "tokens that come encoded, from some ranks or all, give the rows of tokens that are encoded here",
                   false, encoded_tokens});
  cases.push_back(
      {"options/strides", "rows of tokens, expert output and result with gaps between them", true, strides});
  for (const int rows : {1, 4, 8, 16, 32, 64, 128})
    cases.push_back({"options/alignment_" + std::to_string(rows), "experts start at multiples of this many rows",
                     rows == 16, [rows](const Target& target) { alignment(target, rows); }});
  cases.push_back({"options/shared_expert", "own tokens are group 0 and are added last", false, shared_expert});
  cases.push_back({"options/skip_a2a", "replicated tokens, local experts only, split shared expert", true, skip_a2a});
  cases.push_back({"options/workers", "one to three threads work for a rank", true, workers});
  cases.push_back({"options/different_workers", "ranks with different numbers of workers", true, different_workers});
  cases.push_back({"options/non_finite", "NaN and infinity are passed on and counted", true, non_finite});
}

}  // namespace ferry::conformance
