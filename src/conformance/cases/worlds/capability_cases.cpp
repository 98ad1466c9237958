// What a world says that its exchanges can do (World::kind, World::capabilities): what it promises is tried, and what
// it denies must be refused.
#include <string_view>

#include "conformance/cases/cases.h"
#include "conformance/rounds/handle_sequence.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {
namespace {

constexpr Shape kShape{.ranks = 2, .experts = 6, .top_k = 3, .max_tokens = 8, .hidden = 64};

ScenarioSettings plain() {
  ScenarioSettings settings;
  settings.shape = kShape;
  settings.options = options_for("nvfp4");
  settings.routing = "ragged";
  settings.seed = 51;
  settings.spare_rows = 0;
  return settings;
}

// What a rank does with a scenario to try a capability.
using Use = void (*)(World&, const Scenario&);

void use_round(World& world, const Scenario& scenario) {
  Exchange exchange(world, kShape, scenario.settings.options);
  run_round(exchange, scenario, Form::one_call);
}

void use_handle(World& world, const Scenario& scenario) {
  Exchange exchange(world, kShape, scenario.settings.options);
  HandleMemory handle(exchange);
  RankRound round(scenario, world.rank());
  round.out.handle = handle.tensor();
  run_dispatch(exchange, round, Form::one_call);
  round.check_rows();
  round.combine_in = combine_input_with(round, handle);
  run_combine(exchange, round, Form::one_call);
  round.check_tokens();
}

void use_counts(World& world, const Scenario& scenario) {
  Exchange exchange(world, kShape, scenario.settings.options);
  RankRound round(scenario, world.rank());
  exchange.dispatch_async(round.in);
  const RowCounts counts = exchange.wait_for_counts();
  expect_equal(world.rank(), "RowCounts::rows", scenario.rows[static_cast<std::size_t>(world.rank())].rows.size(),
               static_cast<std::uint64_t>(counts.rows));
  exchange.dispatch_wait(round.out);
  round.check_rows();
  run_combine(exchange, round, Form::split);
  round.check_tokens();
}

void use_release(World& world, const Scenario& scenario) {
  Exchange exchange(world, kShape, scenario.settings.options);
  exchange.release();
  exchange.restore();
  run_round(exchange, scenario, Form::split);
}

void use_shared_memory(World& world, const Scenario& scenario) {
  Exchange exchange(world, kShape, scenario.settings.options);
  Exchange other(exchange, kShape, scenario.settings.options);
  run_round(other, scenario, Form::split);
  exchange.take_memory();
  run_round(exchange, scenario, Form::split);
}

struct Flag {
  const char* name;
  bool WorldCapabilities::*value;
  Use use;
  std::function<void(ScenarioSettings&)> set;
};

std::vector<Flag> flags() {
  using Can = WorldCapabilities;
  return {
      {"skip_a2a", &Can::skip_a2a, use_round, [](ScenarioSettings& s) { s.options.skip_a2a = true; }},
      {"function_hooks", &Can::function_hooks, use_round,
       [](ScenarioSettings& s) {
         s.weights = WeightForm::hook;
         s.epilogue = true;
       }},
      {"handles", &Can::handles, use_handle, [](ScenarioSettings&) {}},
      {"row_counts", &Can::row_counts, use_round, [](ScenarioSettings& s) { s.exact_rows = true; }},
      {"asked_counts", &Can::asked_counts, use_counts, [](ScenarioSettings& s) { s.exact_rows = true; }},
      {"result_formats", &Can::result_formats, use_round,
       [](ScenarioSettings& s) { s.options.result_format = result_format_named("f32"); }},
      {"f16_sums", &Can::f16_sums, use_round, [](ScenarioSettings& s) { s.row_dtype = s.output_dtype = DType::f16; }},
      {"more_outputs", &Can::more_outputs, use_round,
       [](ScenarioSettings& s) { s.more_outputs = s.zero_padding = true; }},
      {"overflow", &Can::overflow, use_round,
       [](ScenarioSettings& s) {
         s.overflow = Overflow::expected;
         s.room_percent = 50;
       }},
      {"overflow_handles", &Can::overflow_handles, use_handle,
       [](ScenarioSettings& s) {
         s.overflow = Overflow::expected;
         s.room_percent = 50;
       }},
      {"narrow_weights", &Can::narrow_weights, use_round, [](ScenarioSettings& s) { s.weight_dtype = DType::bf16; }},
      {"late_weights", &Can::late_weights, use_round,
       [](ScenarioSettings& s) {
         s.options.late_weights = true;
         s.weights_at = WeightsAt::combine;
       }},
      {"dynamic_scales", &Can::dynamic_scales, use_round, [](ScenarioSettings& s) { s.options.dynamic_scales = true; }},
      {"returned_weights", &Can::returned_weights, use_round,
       [](ScenarioSettings& s) { s.options.returns_weights = true; }},
      {"release", &Can::release, use_release, [](ScenarioSettings&) {}},
      {"shared_memory", &Can::shared_memory, use_shared_memory, [](ScenarioSettings&) {}},
  };
}

void use(World& world, const Scenario& scenario, Use use, const std::string& name, bool is_promised) {
  world.barrier();  // nobody may be told here of what the next exchange cannot do
  const std::string place = "WorldCapabilities::" + name;
  if (is_promised) {
    try {
      return use(world, scenario);
    } catch (const Error& error) {
      throw Failure(world.rank(), place + ", which is promised", "no error", error.what());
    }
  }
  try {
    use(world, scenario);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::unsupported || error.kind() == ErrorKind::invalid_argument) return;
    throw Failure(world.rank(), place + ", which is denied", "a refusal", error.what());
  }
  throw Failure(world.rank(), place + ", which is denied", "a refusal", "no error");
}

void every_flag(const Target& target) {
  for (const Flag& flag : flags()) {
    ScenarioSettings settings = plain();
    flag.set(settings);
    const Scenario scenario = make_scenario(settings);
    on_ranks(target, kShape.ranks, std::string("capability ") + flag.name, [&](World& world) {
      const WorldCapabilities can = world.capabilities();
      const bool needs_more =
          (flag.use == use_handle && !can.handles) || (settings.overflow != Overflow::refused && !can.overflow);
      use(world, scenario, flag.use, flag.name, can.*flag.value && !needs_more);
    });
  }
}

void every_order(const Target& target) {
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place})
    for (const bool by_counts : {false, true}) {
      if (by_counts && order != RowOrder::by_source) continue;
      ScenarioSettings settings = plain();
      settings.options.row_orders = {order};
      settings.row_orders = {order};
      settings.by_counts = by_counts;
      if (by_counts) settings.weights = WeightForm::none;
      const Scenario scenario = make_scenario(settings);
      const std::string name = by_counts ? "counts_dispatch" : std::string("row_orders ") + to_string(order);
      on_ranks(target, kShape.ranks, "capability " + name, [&](World& world) {
        const WorldCapabilities can = world.capabilities();
        use(world, scenario, use_round, name, can.row_orders.has(order) && (!by_counts || can.counts_dispatch));
      });
    }
}

const char* backend_of(WorldKind kind) {
  switch (kind) {
    case WorldKind::threads:
      return "cpu";
    case WorldKind::shmem:
      return "shmem";
    case WorldKind::cuda:
    case WorldKind::cuda_processes:
      return "cuda";
    case WorldKind::nvshmem:
      return "nvshmem";
    case WorldKind::processes:
      return "processes";
    case WorldKind::other:
      break;
  }
  return nullptr;
}

// What needs no round to be seen.
void kinds(const Target& target) {
  const ScenarioSettings settings = plain();
  on_ranks(target, kShape.ranks, "kinds of worlds", [&](World& world) {
    const int rank = world.rank();
    const WorldCapabilities can = world.capabilities();
    if (const char* backend = backend_of(world.kind())) {
      expect_equal(rank, "World::backend", std::string(backend), world.backend());
      expect_equal(rank, "WorldCapabilities::gpus", is_of_gpus(world.kind()) ? 1 : 0, can.gpus ? 1 : 0);
    }
    expect_equal(rank, "WorldCapabilities::remote_ranks", world.has_remote_ranks() ? 1 : 0, can.remote_ranks ? 1 : 0);
    if (!can.gpus) {
      expect_equal(rank, "WorldCapabilities::device_memory without GPUs", 0, can.device_memory ? 1 : 0);
      expect_equal(rank, "WorldCapabilities::compiled_hooks without GPUs", 0, can.compiled_hooks ? 1 : 0);
    }
    Exchange exchange(world, kShape, settings.options);
    expect_equal(rank, "WorldCapabilities::device_memory", exchange.takes_device_memory() ? 1 : 0,
                 can.device_memory ? 1 : 0);
    if (rank == 0)
      expect_equal(rank, "memory_bytes of a world with such ranks",
                   memory_use(kShape, settings.options, can.remote_ranks).total, exchange.memory_bytes());
  });
}

}  // namespace

void add_capability_cases(Cases& cases) {
  cases.push_back({"world/kinds", "a world is of the kind that it says", true, kinds});
  cases.push_back(
      {"world/capabilities", "what a world promises works, and what it denies is refused", true, every_flag});
  cases.push_back(
      {"world/capabilities_orders", "the same of orders of rows, and of dispatches by counts", true, every_order});
}

}  // namespace ferry::conformance
