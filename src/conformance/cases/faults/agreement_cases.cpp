// Making an exchange: shapes and options that cannot work are refused with the reason, and so are those that differ
// between ranks, with both values.
#include "conformance/cases/cases.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {
namespace {

constexpr Shape kShape{.ranks = 3, .experts = 9, .top_k = 3, .max_tokens = 8, .hidden = 64};

struct Setting {
  Shape shape = kShape;
  ExchangeOptions options = options_for("mxfp8");
};

struct Impossible {
  const char* what;
  std::vector<std::string> fragments;
  std::function<void(Setting&)> spoil;
};

std::vector<Impossible> impossible_settings() {
  return {
      {"no ranks", {"ranks", "at least 1", "ranks=0"}, [](Setting& s) { s.shape.ranks = 0; }},
      {"fewer experts than ranks", {"experts", "ranks", "experts=2"}, [](Setting& s) { s.shape.experts = 2; }},
      {"top_k of 0", {"top_k", "at least 1", "top_k=0"}, [](Setting& s) { s.shape.top_k = 0; }},
      {"top_k of 33",
       {"top_k", "32", "top_k=33"},
       [](Setting& s) { s.shape = {.ranks = 3, .experts = 64, .top_k = 33, .max_tokens = 8, .hidden = 64}; }},
      {"top_k above experts", {"top_k", "experts", "top_k=10"}, [](Setting& s) { s.shape.top_k = 10; }},
      {"no tokens", {"max_tokens", "at least 1", "max_tokens=0"}, [](Setting& s) { s.shape.max_tokens = 0; }},
      {"hidden of 48", {"hidden", "32", "hidden=48"}, [](Setting& s) { s.shape.hidden = 48; }},
      {"hidden of 0", {"hidden", "32", "hidden=0"}, [](Setting& s) { s.shape.hidden = 0; }},
      {"a routing entry that overflows",
       {"max_tokens", "top_k", "32 bits"},
       [](Setting& s) {
         s.shape = {3, 1000, 32, 1 << 20, 32};
       }},
      {"ranks that are not the world's", {"ranks", "4", "3"}, [](Setting& s) { s.shape.ranks = 4; }},
      {"an alignment of 3", {"expert_alignment", "3", "128"}, [](Setting& s) { s.options.expert_alignment = 3; }},
      {"an alignment of 256", {"expert_alignment", "256", "128"}, [](Setting& s) { s.options.expert_alignment = 256; }},
      {"a negative alignment", {"expert_alignment", "-4"}, [](Setting& s) { s.options.expert_alignment = -4; }},
      {"tiles of bf16",
       {"tiled_scales", "mxfp8", "bf16"},
       [](Setting& s) {
         s.options.format = format_named("bf16");
         s.options.tiled_scales = true;
       }},
      {"no workers", {"workers", "0"}, [](Setting& s) { s.options.workers = 0; }},
      {"no concurrent exchange", {"concurrent", "0", "1"}, [](Setting& s) { s.options.concurrent = 0; }},
      {"an all-reduce of 0 ranks",
       {"allreduce_world_size", "0", "1"},
       [](Setting& s) { s.options.allreduce_world_size = 0; }},
      {"an all-reduce without skip_a2a",
       {"allreduce_world_size", "3", "skip_a2a"},
       [](Setting& s) { s.options.allreduce_world_size = 3; }},
      {"a deadline of nothing",
       {"deadline", "0"},
       [](Setting& s) { s.options.deadline = std::chrono::milliseconds(0); }},
      {"a deadline beyond a day",
       {"deadline", "86400001", "86400000"},
       [](Setting& s) { s.options.deadline = std::chrono::milliseconds(86'400'001); }},
      {"a mask for more ranks", {"mask", "4", "3"}, [](Setting& s) { s.options.mask.assign(4, false); }},
  };
}

void refuse_impossible(const Target& target) {
  ScenarioSettings good;
  good.shape = kShape;
  good.options = options_for("mxfp8");
  const Scenario scenario = make_scenario(good);
  on_ranks(target, kShape.ranks, "settings that cannot work", [&](World& world) {
    for (const Impossible& bad : impossible_settings()) {
      Setting setting;
      bad.spoil(setting);
      expect_error(world.rank(), std::string("making an exchange with ") + bad.what, ErrorKind::invalid_argument,
                   bad.fragments, [&] { Exchange exchange(world, setting.shape, setting.options); });
    }
    Exchange exchange(world, kShape, good.options);
    run_round(exchange, scenario, Form::split);
  });
}

struct Difference {
  const char* what;
  std::vector<std::string> fragments;  // both values
  std::function<void(Setting&)> change;
  std::function<void(Setting&)> on_all = [](Setting&) {};  // what else the option needs, on all ranks
};

std::vector<Difference> differences() {
  return {
      {"experts", {"experts", "9", "12"}, [](Setting& s) { s.shape.experts = 12; }},
      {"top_k", {"top_k", "3", "5"}, [](Setting& s) { s.shape.top_k = 5; }},
      {"max_tokens", {"max_tokens", "8", "17"}, [](Setting& s) { s.shape.max_tokens = 17; }},
      {"hidden", {"hidden", "64", "96"}, [](Setting& s) { s.shape.hidden = 96; }},
      {"format", {"format", "mxfp8", "mxfp4"}, [](Setting& s) { s.options.format = format_named("mxfp4"); }},
      {"result_format",
       {"result_format", "bf16", "f16"},
       [](Setting& s) { s.options.result_format = result_format_named("f16"); }},
      {"reduction", {"reduction", "by_rank", "exact"}, [](Setting& s) { s.options.reduction = Reduction::exact; }},
      {"tiled_scales", {"tiled_scales"}, [](Setting& s) { s.options.tiled_scales = true; }},
      {"expert_alignment", {"expert_alignment", "16"}, [](Setting& s) { s.options.expert_alignment = 16; }},
      {"fused_shared_expert", {"fused_shared_expert"}, [](Setting& s) { s.options.fused_shared_expert = true; }},
      {"skip_a2a", {"skip_a2a"}, [](Setting& s) { s.options.skip_a2a = true; }},
      {"concurrent", {"concurrent", "1", "2"}, [](Setting& s) { s.options.concurrent = 2; }},
      {"late_weights", {"late_weights is 0", "and 1"}, [](Setting& s) { s.options.late_weights = true; }},
      {"message_copies", {"message_copies is 2", "and 4"}, [](Setting& s) { s.options.message_copies = 4; }},
      {"returns_weights", {"returns_weights is 0", "and 1"}, [](Setting& s) { s.options.returns_weights = true; }},
      {"dynamic_scales",
       {"dynamic_scales is 0", "and 1"},
       [](Setting& s) { s.options.dynamic_scales = true; },
       [](Setting& s) { s.options.format = format_named("nvfp4"); }},
      {"allreduce_world_size",
       {"allreduce_world_size is 3", "and 4"},
       [](Setting& s) { s.options.allreduce_world_size = 4; },
       [](Setting& s) {
         s.options.skip_a2a = s.options.fused_shared_expert = true;
         s.options.allreduce_world_size = 3;
       }},
  };
}

// Rank 1 gives something else than the others: all ranks are told, none hangs, and the world can be used again.
void report_differences(const Target& target) {
  ScenarioSettings good;
  good.shape = kShape;
  good.options = options_for("mxfp8");
  const Scenario scenario = make_scenario(good);
  on_ranks(target, kShape.ranks, "settings that differ between ranks", [&](World& world) {
    for (const Difference& difference : differences()) {
      Setting setting;
      difference.on_all(setting);
      if (world.rank() == 1) difference.change(setting);
      std::vector<std::string> fragments = difference.fragments;
      fragments.push_back("rank 1");
      expect_error(world.rank(), std::string("rank 1 gives another ") + difference.what, ErrorKind::invalid_argument,
                   fragments, [&] { Exchange exchange(world, setting.shape, setting.options); });
    }
    Exchange exchange(world, kShape, good.options);
    run_round(exchange, scenario, Form::split);
  });
}

// Rank 1 alone gives what cannot work: all ranks are told at once, none hangs, and the world can be used again.
void refuse_on_one_rank(const Target& target) {
  ScenarioSettings good;
  good.shape = kShape;
  good.options = options_for("mxfp8");
  const Scenario scenario = make_scenario(good);
  on_ranks(target, kShape.ranks, "settings that one rank refuses", [&](World& world) {
    for (const Impossible& impossible : impossible_settings()) {
      Setting setting;
      if (world.rank() == 1) impossible.spoil(setting);
      std::vector<std::string> fragments = impossible.fragments;
      if (world.rank() != 1) fragments.emplace_back("rank 1 does not make this exchange");
      const auto begin = std::chrono::steady_clock::now();
      expect_error(world.rank(), std::string("rank 1 gives ") + impossible.what, ErrorKind::invalid_argument, fragments,
                   [&] { Exchange exchange(world, setting.shape, setting.options); });
      expect_equal(world.rank(), "told before the deadline (1: yes)", 1,
                   std::chrono::steady_clock::now() - begin < kSuiteDeadline / 2 ? 1 : 0);
    }
    Exchange exchange(world, kShape, good.options);
    run_round(exchange, scenario, Form::split);
  });
}

}  // namespace

void add_agreement_cases(Cases& cases) {
  cases.push_back({"agreement/impossible", "shapes and options that cannot work are refused", true, refuse_impossible});
  cases.push_back({"agreement/refused_on_one_rank", "what one rank alone refuses is told to all of them", true,
                   refuse_on_one_rank});
  cases.push_back(
      {"agreement/differences", "what differs between ranks is reported with both values", true, report_differences});
}

}  // namespace ferry::conformance
