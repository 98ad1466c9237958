// Bad input: each is refused with the argument, the value and the limit, nothing is written, and the exchange works on.
#include <cstring>

#include "conformance/cases/cases.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {
namespace {

constexpr Shape kShape{.ranks = 2, .experts = 8, .top_k = 3, .max_tokens = 10, .hidden = 64};

ScenarioSettings settings_for(const char* format, Reduction reduction) {
  ScenarioSettings settings;
  settings.shape = kShape;
  settings.options = options_for(format, reduction);
  settings.seed = 77;
  return settings;
}

struct Spoiled {
  const char* what;
  std::vector<std::string> fragments;  // that the error must hold: argument, value, limit
  std::function<void(RankRound&)> spoil;
};

void set_id(RankRound& round, std::size_t index, std::int32_t id) {
  std::memcpy(round.topk_ids.data() + index * sizeof id, &id, sizeof id);
}

template <class AnyTensor>
AnyTensor column_stride_2(AnyTensor tensor) {
  tensor.strides[1] = 2;
  return tensor;
}

std::vector<Spoiled> spoiled_inputs() {
  return {
      {"an id past the last expert", {"topk_ids[1, 2]", "8", "7"}, [](RankRound& r) { set_id(r, 5, 8); }},
      {"an id below -1", {"topk_ids[0, 0]", "-2", "-1"}, [](RankRound& r) { set_id(r, 0, -2); }},
      {"an id twice in a token",
       {"topk_ids[0, 1]", "distinct"},
       [](RankRound& r) { std::memcpy(r.topk_ids.data() + 4, r.topk_ids.data(), 4); }},
      {"more tokens than max_tokens",
       {"tokens", "11", "max_tokens", "10"},
       [](RankRound& r) { r.in.tokens.shape[0] = 11; }},
      {"another hidden", {"tokens", "[10, 32]", "64"}, [](RankRound& r) { r.in.tokens.shape[1] = 32; }},
      {"tokens of rank 1", {"tokens", "64"}, [](RankRound& r) { r.in.tokens.rank = 1; }},
      {"columns with gaps",
       {"tokens", "2", "stride"},
       [](RankRound& r) { r.in.tokens = column_stride_2(r.in.tokens); }},
      {"overlapping token rows", {"tokens", "stride", "63", "64"}, [](RankRound& r) { r.in.tokens.strides[0] = 63; }},
      {"f64 tokens", {"tokens", "f64", "bf16"}, [](RankRound& r) { r.in.tokens.dtype = DType::f64; }},
      {"encoded tokens of another width",
       {"tokens", "[10, 48]", "64"},
       [](RankRound& r) {
         r.in.tokens.dtype = DType::u8;
         r.in.tokens.shape[1] = 48;
       }},
      {"encoded tokens without scales",
       {"token_scales", "not given"},
       [](RankRound& r) { r.in.tokens.dtype = DType::u8; }},
      {"encoded tokens with scales of another dtype",
       {"token_scales", "f32", "u8"},
       [](RankRound& r) {
         r.in.tokens.dtype = DType::u8;
         r.in.token_scales = r.in.topk_weights;
       }},
      {"scales of tokens that are not encoded",
       {"token_scales", "encoded", "u8 [n, 64]"},
       [](RankRound& r) { r.in.token_scales = r.in.topk_weights; }},
      {"no tokens tensor", {"tokens", "not given"}, [](RankRound& r) { r.in.tokens = {}; }},
      {"no ids tensor", {"topk_ids", "not given"}, [](RankRound& r) { r.in.topk_ids = {}; }},
      {"f32 ids", {"topk_ids", "f32", "i32"}, [](RankRound& r) { r.in.topk_ids.dtype = DType::f32; }},
      {"ids of another K", {"topk_ids", "[10, 2]", "3"}, [](RankRound& r) { r.in.topk_ids.shape[1] = 2; }},
      {"ids of fewer tokens", {"topk_ids", "[9, 3]", "10"}, [](RankRound& r) { r.in.topk_ids.shape[0] = 9; }},
      {"ids with gaps", {"topk_ids", "contiguous"}, [](RankRound& r) { r.in.topk_ids.strides[0] = 4; }},
      {"f64 weights", {"topk_weights", "f64", "f32"}, [](RankRound& r) { r.in.topk_weights.dtype = DType::f64; }},
      {"weights of another shape",
       {"topk_weights", "[10, 2]", "3"},
       [](RankRound& r) { r.in.topk_weights.shape[1] = 2; }},
      {"tokens at an odd address",
       {"tokens", "address", "multiple of 2"},
       [](RankRound& r) { r.in.tokens.data = r.tokens.data() + 1; }},
      {"weights and hook",
       {"topk_weights", "router_weight"},
       [](RankRound& r) { r.in.router_weight = [](void*, int, int) { return 1.0f; }; }},
  };
}

std::vector<Spoiled> spoiled_outputs() {
  return {
      {"no payload", {"payload", "not given"}, [](RankRound& r) { r.out.payload = {}; }},
      {"a payload of other rows", {"payload", "[65", "64"}, [](RankRound& r) { r.out.payload.shape[1] = 32; }},
      {"an f32 payload", {"payload", "f32", "u8"}, [](RankRound& r) { r.out.payload.dtype = DType::f32; }},
      {"a payload with gaps", {"payload", "contiguous"}, [](RankRound& r) { r.out.payload.strides[0] = 128; }},
      {"a payload off 16 bytes",
       {"payload", "address", "16"},
       [](RankRound& r) { r.out.payload.data = r.payload.data() + 8; }},
      {"no scales", {"scales", "not given"}, [](RankRound& r) { r.out.scales = {}; }},
      {"f32 scales", {"scales", "f32", "u8"}, [](RankRound& r) { r.out.scales.dtype = DType::f32; }},
      {"scales of another shape", {"scales", "2"}, [](RankRound& r) { r.out.scales.shape[1] = 3; }},
      {"row_offsets nowhere", {"row_offsets", "not given"}, [](RankRound& r) { r.out.row_offsets.data = nullptr; }},
      {"row_offsets too short", {"row_offsets", "[4]", "5"}, [](RankRound& r) { r.out.row_offsets.shape[0] = 4; }},
      {"i32 row_offsets", {"row_offsets", "i32", "u32"}, [](RankRound& r) { r.out.row_offsets.dtype = DType::i32; }},
      {"expert_ids nowhere", {"expert_ids", "not given"}, [](RankRound& r) { r.out.expert_ids.data = nullptr; }},
      {"expert_ids too long", {"expert_ids", "[5]", "4"}, [](RankRound& r) { r.out.expert_ids.shape[0] = 5; }},
      {"src_info nowhere", {"src_info", "not given"}, [](RankRound& r) { r.out.src_info.data = nullptr; }},
      {"src_info of one column", {"src_info", "2"}, [](RankRound& r) { r.out.src_info.shape[1] = 1; }},
      {"scales_offsets without tiles",
       {"scales_offsets", "tiled"},
       [](RankRound& r) { r.out.scales_offsets = Tensor(r.scales_offsets.data(), DType::u32, {4}); }},
  };
}

void set_src_info(RankRound& round, std::size_t row, std::int32_t token, std::int32_t k) {
  const std::int32_t values[2] = {token, k};
  std::memcpy(round.src_info.data() + row * sizeof values, values, sizeof values);
}

std::vector<Spoiled> spoiled_results() {
  return {
      {"a token out of range", {"src_info[0]", "10", "9"}, [](RankRound& r) { set_src_info(r, 0, 10, 0); }},
      {"a negative token", {"src_info[0]", "-5", "9"}, [](RankRound& r) { set_src_info(r, 0, -5, 0); }},
      {"a k out of range", {"src_info[2]", "7", "3"}, [](RankRound& r) { set_src_info(r, 2, 0, 7); }},
      {"rows in another order",
       {"src_info[0]", "order"},
       [](RankRound& r) { std::swap_ranges(r.src_info.begin(), r.src_info.begin() + 8, r.src_info.begin() + 8); }},
      {"no rows", {"rows", "not given"}, [](RankRound& r) { r.combine_in.rows = {}; }},
      {"too few rows", {"rows", "2", "row_offsets"}, [](RankRound& r) { r.combine_in.rows.shape[0] = 2; }},
      {"i32 rows", {"rows", "i32", "bf16"}, [](RankRound& r) { r.combine_in.rows.dtype = DType::i32; }},
      {"rows of another hidden", {"rows", "32", "64"}, [](RankRound& r) { r.combine_in.rows.shape[1] = 32; }},
      {"src_info too short",
       {"src_info", "1", "row_offsets"},
       [](RankRound& r) { r.combine_in.src_info.shape[0] = 1; }},
      {"bias of fewer tokens",
       {"bias[1]", "9", "10"},
       [](RankRound& r) {
         r.combine_in.bias[1] = r.combine_out.tokens;
         r.combine_in.bias[1].shape[0] = 9;
       }},
      {"bias of another hidden",
       {"bias[0]", "32", "64"},
       [](RankRound& r) {
         r.combine_in.bias[0] = r.combine_out.tokens;
         r.combine_in.bias[0].shape[1] = 32;
       }},
      {"i32 output", {"tokens", "i32", "bf16"}, [](RankRound& r) { r.combine_out.tokens.dtype = DType::i32; }},
      {"output of fewer tokens", {"tokens", "9", "10"}, [](RankRound& r) { r.combine_out.tokens.shape[0] = 9; }},
      {"no output", {"tokens", "not given", "epilogue"}, [](RankRound& r) { r.combine_out.tokens = {}; }},
  };
}

// Every rank is given the bad input, then does a whole good round on the same exchange.
void refuse_dispatch(const Target& target, const std::vector<Spoiled>& all) {
  const Scenario scenario = make_scenario(settings_for("mxfp8", Reduction::by_rank));
  on_ranks(target, kShape.ranks, "refused dispatch", [&](World& world) {
    Exchange exchange(world, kShape, scenario.settings.options);
    for (const Spoiled& bad : all) {
      RankRound round(scenario, world.rank());
      bad.spoil(round);
      expect_error(world.rank(), std::string("dispatch with ") + bad.what, ErrorKind::invalid_argument, bad.fragments,
                   [&] { exchange.dispatch(round.in, round.out); });
      round.check_untouched();
      run_round(exchange, scenario, Form::split);
    }
  });
}

// Only one rank is given the bad input; it repeats the call, and the others notice nothing.
void refuse_one_rank(const Target& target) {
  const Scenario scenario = make_scenario(settings_for("bf16", Reduction::by_rank));
  on_ranks(target, kShape.ranks, "bad input on one rank", [&](World& world) {
    Exchange exchange(world, kShape, scenario.settings.options);
    for (int repeat = 0; repeat < 3; ++repeat) {
      if (world.rank() == 1) {
        RankRound round(scenario, 1);
        set_id(round, 4, 99);
        expect_error(1, "dispatch_async with an id of 99", ErrorKind::invalid_argument, {"topk_ids", "99", "7"},
                     [&] { exchange.dispatch_async(round.in); });
      }
      run_round(exchange, scenario, Form::split);
    }
  });
}

void refuse_combine(const Target& target, Reduction reduction) {
  const Scenario scenario = make_scenario(settings_for("bf16", reduction));
  on_ranks(target, kShape.ranks, "refused combine", [&](World& world) {
    Exchange exchange(world, kShape, scenario.settings.options);
    for (const Spoiled& bad : spoiled_results()) {
      RankRound round(scenario, world.rank());
      run_dispatch(exchange, round, Form::one_call);
      RankRound untouched(scenario, world.rank());
      const std::vector<std::byte> src_info = round.src_info;
      const CombineInput in = round.combine_in;
      const CombineOutput out = round.combine_out;
      bad.spoil(round);
      expect_error(world.rank(), std::string("combine with ") + bad.what, ErrorKind::invalid_argument, bad.fragments,
                   [&] { exchange.combine(round.combine_in, round.combine_out); });
      expect_equal(world.rank(), std::string("combine's tokens after ") + bad.what + " (1: untouched)", 1,
                   round.output == untouched.output ? 1 : 0);
      std::copy(src_info.begin(), src_info.end(), round.src_info.begin());
      round.combine_in = in;
      round.combine_out = out;
      run_combine(exchange, round, Form::one_call);
      round.check_tokens();
    }
  });
}

// The waits refuse bad outputs too, and may then be called again with good ones.
void refuse_waits(const Target& target) {
  const Scenario scenario = make_scenario(settings_for("mxfp8", Reduction::exact));
  on_ranks(target, kShape.ranks, "refused waits", [&](World& world) {
    const int rank = world.rank();
    Exchange exchange(world, kShape, scenario.settings.options);
    RankRound round(scenario, rank);
    exchange.dispatch_async(round.in);
    for (const Spoiled& bad : spoiled_outputs()) {
      RankRound spoiled(scenario, rank);
      bad.spoil(spoiled);
      expect_error(rank, std::string("dispatch_wait with ") + bad.what, ErrorKind::invalid_argument, bad.fragments,
                   [&] { exchange.dispatch_wait(spoiled.out); });
      spoiled.check_untouched();
    }
    exchange.dispatch_wait(round.out);
    round.check_rows();
    exchange.combine_async(round.combine_in);
    CombineOutput bad = round.combine_out;
    bad.tokens.shape[0] -= 1;
    expect_error(rank, "combine_wait with a token too few", ErrorKind::invalid_argument, {"tokens", "9", "10"},
                 [&] { exchange.combine_wait(bad); });
    exchange.combine_wait(round.combine_out);
    round.check_tokens();
  });
}

// A dispatch that is refused leaves the open round as it was: how many tokens it has, and what combine_wait still
// reads.
void keep_the_open_round(const Target& target) {
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) {
    ScenarioSettings settings = settings_for("bf16", reduction);
    settings.options.fused_shared_expert = reduction == Reduction::by_rank;
    const Scenario scenario = make_scenario(settings);
    on_ranks(target, kShape.ranks, "a refused dispatch within a round", [&](World& world) {
      Exchange exchange(world, kShape, scenario.settings.options);
      for (const bool returning : {false, true}) {
        RankRound round(scenario, world.rank());
        run_dispatch(exchange, round, Form::one_call);
        if (returning) exchange.combine_async(round.combine_in);
        RankRound refused(scenario, world.rank());
        refused.in.tokens.shape[0] = refused.in.topk_ids.shape[0] = 4;
        if (refused.in.topk_weights) refused.in.topk_weights.shape[0] = 4;
        refused.out.payload = {};
        expect_error(world.rank(), "dispatch of fewer tokens without payload", ErrorKind::invalid_argument, {"payload"},
                     [&] { exchange.dispatch(refused.in, refused.out); });
        if (returning)
          exchange.combine_wait(round.combine_out);
        else
          exchange.combine(round.combine_in, round.combine_out);
        round.check_tokens();
      }
    });
  }
}

// Int64 ids are not cut down to 32 bits before they are checked.
void refuse_wide_ids(const Target& target) {
  ScenarioSettings settings = settings_for("bf16", Reduction::by_rank);
  settings.id_dtype = DType::i64;
  const Scenario scenario = make_scenario(settings);
  on_ranks(target, kShape.ranks, "int64 ids out of range", [&](World& world) {
    Exchange exchange(world, kShape, scenario.settings.options);
    for (const std::int64_t id : {std::int64_t{1} << 32, -(std::int64_t{1} << 32), (std::int64_t{1} << 32) - 1}) {
      RankRound round(scenario, world.rank());
      std::memcpy(round.topk_ids.data() + 8, &id, sizeof id);
      expect_error(world.rank(), "id " + std::to_string(id), ErrorKind::invalid_argument,
                   {"topk_ids[0, 1]", std::to_string(id), "7"}, [&] { exchange.dispatch(round.in, round.out); });
      round.check_untouched();
    }
    run_round(exchange, scenario, Form::split);
  });
}

void refuse_weights_at_the_wrong_call(const Target& target) {
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) {
    const Scenario scenario = make_scenario(settings_for("bf16", reduction));
    on_ranks(target, kShape.ranks, "weights at the wrong call", [&](World& world) {
      Exchange exchange(world, kShape, scenario.settings.options);
      RankRound round(scenario, world.rank());
      const bool exact = reduction == Reduction::exact;
      if (exact) {
        RankRound bad(scenario, world.rank());
        bad.in.topk_weights = bad.combine_in.topk_weights;
        expect_error(world.rank(), "dispatch with weights", ErrorKind::invalid_argument, {"topk_weights", "exact"},
                     [&] { exchange.dispatch(bad.in, bad.out); });
      }
      run_dispatch(exchange, round, Form::split);
      if (!exact) {
        RankRound bad(scenario, world.rank());
        bad.combine_in.topk_weights = bad.in.topk_weights;
        bad.combine_in.src_info = round.combine_in.src_info;
        expect_error(world.rank(), "combine with weights", ErrorKind::invalid_argument, {"topk_weights", "by_rank"},
                     [&] { exchange.combine(bad.combine_in, bad.combine_out); });
      }
      run_combine(exchange, round, Form::split);
      round.check_tokens();
    });
  }
}

void refuse_unreduced(const Target& target) {
  ScenarioSettings settings = settings_for("bf16", Reduction::by_rank);
  const Scenario scenario = make_scenario(settings);
  on_ranks(target, kShape.ranks, "unreduced output of by_rank", [&](World& world) {
    Exchange exchange(world, kShape, scenario.settings.options);
    RankRound round(scenario, world.rank());
    run_dispatch(exchange, round, Form::split);
    std::vector<std::byte> memory(10 * 3 * 64 * 2, kPoison);
    CombineOutput out;
    out.tokens = Tensor(memory.data(), DType::bf16, {10, 3, 64});
    expect_error(world.rank(), "unreduced output", ErrorKind::invalid_argument, {"tokens", "[10, 3, 64]", "exact"},
                 [&] { exchange.combine(round.combine_in, out); });
    run_combine(exchange, round, Form::split);
    round.check_tokens();
  });
}

// Weights that no sum applies. combine_async cannot know it; the half that writes the rows does.
void refuse_weighted_unreduced(const Target& target) {
  const Scenario scenario = make_scenario(settings_for("bf16", Reduction::exact));
  on_ranks(target, kShape.ranks, "weights and unreduced output", [&](World& world) {
    Exchange exchange(world, kShape, scenario.settings.options);
    std::vector<std::byte> memory(10 * 3 * 64 * 2, kPoison);
    CombineOutput out;
    out.tokens = Tensor(memory.data(), DType::bf16, {10, 3, 64});
    for (const Form form : {Form::one_call, Form::split}) {
      RankRound round(scenario, world.rank());
      run_dispatch(exchange, round, form);
      if (form == Form::split) exchange.combine_async(round.combine_in);
      expect_error(world.rank(), "weights and unreduced output", ErrorKind::invalid_argument,
                   {"[10, 3, 64]", "topk_weights"}, [&] {
                     if (form == Form::split) return exchange.combine_wait(out);
                     exchange.combine(round.combine_in, out);
                   });
      if (form == Form::split)
        exchange.combine_wait(round.combine_out);
      else
        run_combine(exchange, round, form);
      round.check_tokens();
    }
  });
}

}  // namespace

void add_refusal_cases(Cases& cases) {
  cases.push_back({"refusals/dispatch_input", "bad tokens, ids and weights", true,
                   [](const Target& b) { refuse_dispatch(b, spoiled_inputs()); }});
  cases.push_back({"refusals/dispatch_output", "bad payload, scales, row_offsets, expert_ids and src_info", true,
                   [](const Target& b) { refuse_dispatch(b, spoiled_outputs()); }});
  cases.push_back({"refusals/one_rank", "bad input on one rank disturbs no other", true, refuse_one_rank});
  cases.push_back(
      {"refusals/open_round", "a refused dispatch leaves the round before it as it was", true, keep_the_open_round});
  cases.push_back({"refusals/combine_by_rank", "bad rows, src_info and output", true,
                   [](const Target& b) { refuse_combine(b, Reduction::by_rank); }});
  cases.push_back({"refusals/combine_exact", "bad rows, src_info and output", true,
                   [](const Target& b) { refuse_combine(b, Reduction::exact); }});
  cases.push_back({"refusals/waits", "bad outputs of dispatch_wait and combine_wait", true, refuse_waits});
  cases.push_back({"refusals/int64_ids", "ids beyond 32 bits", true, refuse_wide_ids});
  cases.push_back(
      {"refusals/weights", "weights at the call that does not take them", true, refuse_weights_at_the_wrong_call});
  cases.push_back({"refusals/unreduced", "unreduced output needs exact", true, refuse_unreduced});
  cases.push_back({"refusals/weighted_unreduced", "weights with unreduced output", true, refuse_weighted_unreduced});
}

}  // namespace ferry::conformance
