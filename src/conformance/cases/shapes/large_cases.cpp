// Rounds of hundreds of tokens on a rank, or over a thousand: every worker has many of them, and an expert rows of
// many. Every layout of scales, with groups of many rows, of few and of none.
#include <array>
#include <functional>
#include <string>

#include "conformance/cases/cases.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {
namespace {

constexpr int kTokens = 1500;

// Few: each has many rows, so GPUs store their scales last. From 4 to half of a GPU a dispatch is a kernel of its own.
int max_blocks_of(const std::string& routing) {
  if (routing == "empty_ranks" || routing == "zipf") return 0;
  if (routing == "one_expert") return 8;
  return routing == "some_none" ? 4 : 3;
}

// 2 ranks: the fewest GPUs that send each other anything.
ScenarioSettings settings_for(const char* format, const char* routing, int hidden) {
  ScenarioSettings settings;
  settings.shape = {2, 24, 3, kTokens, hidden};
  settings.options = options_for(format);
  settings.options.tiled_scales = format == std::string("mxfp8");
  settings.routing = routing;
  settings.seed = 31;
  return settings;
}

// Rows whose scales of one byte do not fill the last word of a tile.
void layouts(const Target& target, const char* format) {
  for (const char* routing : {"uniform", "zipf", "one_expert", "some_none", "empty_ranks"}) {
    ScenarioSettings settings = settings_for(format, routing, 608);
    settings.options.expert_alignment = routing == std::string("some_none") ? 128 : 1;
    settings.options.fused_shared_expert = routing == std::string("uniform") || routing == std::string("some_none");
    settings.spare_rows = routing == std::string("uniform") ? 0 : 3;
    settings.max_blocks = max_blocks_of(routing);
    run_scenario(target, settings, routing == std::string("zipf") ? Form::one_call : Form::split);
  }
}

// Rows in another order. Rows by_source need to know which tokens come.
void orders(const Target& target) {
  for (const RowOrder order : {RowOrder::by_source, RowOrder::padded, RowOrder::in_place})
    for (const int max_blocks : {0, 3, 8}) {
      ScenarioSettings settings = settings_for("mxfp8", max_blocks == 3 ? "zipf" : "uniform", 608);
      if (order == RowOrder::by_source) settings.options.row_orders = {order, RowOrder::by_expert};
      settings.row_orders = {order};
      settings.max_blocks = max_blocks;
      run_scenario(target, settings, Form::one_call);
    }
}

// Few blocks, each with many small messages, which one warp makes on GPUs; of the formats that `layouts` has not.
void few_senders(const Target& target) {
  for (const char* format : {"bf16", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4"}) {
    ScenarioSettings settings = settings_for(format, "uniform", 608);
    settings.options.reduction = format == std::string("bf16") ? Reduction::exact : Reduction::by_rank;
    settings.max_blocks = 8;
    run_scenario(target, settings, Form::one_call);
  }
}

// As many rows of a token as there may be.
void many_choices(const Target& target) {
  for (const char* format : {"fp8_block128", "nvfp4"}) {
    ScenarioSettings settings = settings_for(format, "uniform", 608);
    settings.shape.experts = 64;
    settings.shape.top_k = 32;
    settings.shape.max_tokens = 300;
    settings.max_blocks = 8;
    run_scenario(target, settings, Form::one_call);
  }
}

// Routing tables so large that more than eight blocks of a GPU build them, with fewer and with more experts than a
// block has threads.
void many_entries(const Target& target) {
  for (const int experts : {64, 600})
    for (const int ranks : {1, 2}) {
      ScenarioSettings settings = settings_for("bf16", ranks == 1 ? "uniform" : "ragged", 32);
      settings.shape.ranks = ranks;
      settings.shape.experts = experts;
      settings.shape.top_k = 22;
      run_scenario(target, settings, Form::one_call);
    }
}

void many_experts(const Target& target) {
  for (const char* format : {"fp8_block128", "nvfp4"}) {
    ScenarioSettings settings = settings_for(format, "uniform", 608);
    settings.shape.experts = 1500;
    settings.max_blocks = 4;
    run_scenario(target, settings, Form::one_call);
  }
}

// More groups of rows than a block has threads, on one rank: it finds their starts in turns.
void many_groups(const Target& target) {
  for (const int experts : {511, 512, 1024}) {
    ScenarioSettings settings = settings_for("mxfp8", "uniform", 608);
    settings.shape.ranks = 1;
    settings.shape.experts = experts;
    settings.options.fused_shared_expert = true;
    run_scenario(target, settings, Form::one_call);
  }
}

// A world of one rank, which shares its blocks out in another way where it has thousands of tokens, and results of more
// bytes than a cache holds.
void one_rank(const Target& target) {
  ScenarioSettings settings = settings_for("fp8_block128", "uniform", 7168);
  settings.shape = {.ranks = 1, .experts = 24, .top_k = 4, .max_tokens = 1800, .hidden = 7168};
  run_scenario(target, settings, Form::one_call);

  settings = settings_for("nvfp4", "uniform", 608);
  settings.shape = {.ranks = 1, .experts = 24, .top_k = 4, .max_tokens = 2100, .hidden = 608};
  settings.options.fused_shared_expert = true;
  run_scenario(target, settings, Form::split);

  settings.max_blocks = 8;
  run_scenario(target, settings, Form::one_call);
  settings.options = options_for("fp8_block128", Reduction::exact);
  settings.output_dtype = DType::f32;
  run_scenario(target, settings, Form::one_call);
}

// Four ranks, each of which has others to send to; all that combine has beside sums of bf16 rows.
void combines(const Target& target, const ScenarioSettings& common) {
  const auto run = [&](Reduction reduction, const std::function<void(ScenarioSettings&)>& change) {
    ScenarioSettings settings = common;
    settings.options = options_for("fp8_block128", reduction);
    change(settings);
    run_scenario(target, settings, Form::one_call);
  };
  run(Reduction::by_rank, [](ScenarioSettings&) {});
  run(Reduction::exact, [](ScenarioSettings& s) { s.row_dtype = s.output_dtype = DType::f32; });
  run(Reduction::by_rank, [](ScenarioSettings& s) { s.row_dtype = DType::f32; });
  run(Reduction::by_rank, [](ScenarioSettings& s) { s.weights = WeightForm::none; });  // results of one row and sums
  run(Reduction::by_rank, [](ScenarioSettings& s) { s.epilogue = true; });
  run(Reduction::exact, [](ScenarioSettings& s) {
    s.weights = WeightForm::none;
    s.unreduced = true;
  });
  run(Reduction::exact, [](ScenarioSettings& s) { s.options.fused_shared_expert = true; });
  if (!target.can_lose_ranks) return;
  for (const Reduction reduction : {Reduction::exact, Reduction::by_rank})
    run(reduction, [](ScenarioSettings& s) { s.options.mask = {false, false, true, false}; });
}

void combines_of_many_blocks(const Target& target) {
  ScenarioSettings settings = settings_for("fp8_block128", "uniform", 608);
  settings.shape.ranks = 4;
  settings.shape.max_tokens = 700;
  combines(target, settings);
}

// Rows of many columns, and many of them in a sum: GPUs take them by way of shared memory, piece by piece, and use each
// place there more than once.
void combines_of_few_blocks(const Target& target) {
  ScenarioSettings settings = settings_for("fp8_block128", "uniform", 2912);
  settings.shape = {.ranks = 4, .experts = 24, .top_k = 8, .max_tokens = 100, .hidden = 2912};
  settings.max_blocks = 8;
  combines(target, settings);
}

// Large and small rounds of one exchange in turn, by few blocks and by all, some of them given up: nothing is left of
// one for the next.
void in_turn(const Target& target, const char* format) {
  std::vector<Scenario> scenarios;
  for (const char* routing :
       {"uniform", "ragged", "zipf", "one_token", "uniform", "no_tokens", "one_rank", "uniform"}) {
    ScenarioSettings settings = settings_for(format, routing, 608);
    settings.max_blocks = std::array{3, 4, 0}[scenarios.size() % 3];
    settings.seed += scenarios.size();
    scenarios.push_back(make_scenario(settings));
  }
  on_ranks(target, 2, std::string("large and small rounds, ") + format, [&](World& world) {
    Exchange exchange(world, scenarios[0].settings.shape, scenarios[0].settings.options);
    for (std::size_t i = 0; i < scenarios.size(); ++i) {
      RankRound round(scenarios[i], world.rank());
      run_dispatch(exchange, round, i % 2 == 0 ? Form::one_call : Form::split);
      round.check_rows();
      if (i % 3 == 1) continue;  // no combine
      run_combine(exchange, round, Form::split);
      round.check_tokens();
    }
  });
}

}  // namespace

void add_large_cases(Cases& cases) {
  for (const char* format : {"fp8_block128", "fp8_block128_ue8m0", "nvfp4", "mxfp8"}) {
    const std::string name = std::string("large/") + format;
    cases.push_back({name, "over a thousand tokens on a rank, alignments 1 and 128, a shared expert", false,
                     [format](const Target& target) { layouts(target, format); }});
    cases.push_back({name + "_in_turn", "large and small rounds on one exchange, some given up", false,
                     [format](const Target& target) { in_turn(target, format); }});
  }
  cases.push_back({"large/orders", "over a thousand tokens on a rank, each order of rows", false, orders});
  cases.push_back({"large/few_senders", "over a thousand tokens on a rank, by few blocks", false, few_senders});
  cases.push_back({"large/combines", "hundreds of tokens on each of four ranks, all that combine has", false,
                   combines_of_many_blocks});
  cases.push_back({"large/combines_few_blocks",
                   "a hundred tokens on each of four ranks, sums of many rows by few blocks", false,
                   combines_of_few_blocks});
  cases.push_back(
      {"large/many_choices", "32 experts for each of hundreds of tokens, by few blocks", false, many_choices});
  cases.push_back({"large/many_entries", "a routing table of 33,000 entries", false, many_entries});
  cases.push_back({"large/one_rank", "thousands of tokens on the only rank", false, one_rank});
  cases.push_back({"large/many_groups", "more groups of rows than a block has threads", false, many_groups});
  cases.push_back({"large/many_experts", "over a thousand tokens on a rank, few for an expert", false, many_experts});
}

}  // namespace ferry::conformance
