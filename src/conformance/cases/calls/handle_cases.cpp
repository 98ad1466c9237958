// Cases over handles: sequences as training and inference make them, and any sequence that a seed draws.
#include <algorithm>
#include <memory>
#include <optional>

#include "conformance/cases/cases.h"
#include "conformance/rounds/handle_sequence.h"

namespace ferry::conformance {
namespace {

constexpr Shape kShape{.ranks = 3, .experts = 10, .top_k = 4, .max_tokens = 12, .hidden = 64};

ScenarioSettings settings_for(const char* format, Reduction reduction, std::uint64_t seed, const char* routing) {
  ScenarioSettings settings;
  settings.shape = kShape;
  settings.options = options_for(format, reduction);
  settings.options.expert_alignment = 4;
  settings.seed = seed;
  settings.routing = routing;
  return settings;
}

// Runs `body` on all ranks. Skipped where the world has no handles: all ranks of a world agree on that.
void with_handles(const Target& target, int ranks, const std::string& what, const std::function<void(World&)>& body) {
  on_ranks(target, ranks, what, [&](World& world) {
    if (!world.capabilities().handles) throw Skipped("the exchanges of this world have no handles");
    body(world);
  });
}

// A dispatch of `scenario` that leaves a handle.
class KeptRound {
 public:
  KeptRound(Exchange& exchange, const Scenario& scenario, Form form)
      : exchange_(exchange), handle_(exchange, scenario), form_(form) {
    RankRound round(scenario, exchange.rank());
    round.out.handle = handle_.tensor();
    run_dispatch(exchange, round, form);
    round.check_rows();
  }
  // Other tokens by the same routing, on any exchange.
  void replay(Exchange& exchange, const Scenario& scenario) {
    RankRound round(scenario, exchange.rank());
    round.in = input_with(round, handle_);
    run_dispatch(exchange, round, form_);
    round.check_rows();
  }
  void combine(Exchange& exchange, const Scenario& scenario) {
    RankRound round(scenario, exchange.rank());
    round.combine_in.src_info = {};
    round.combine_in = combine_input_with(round, handle_);
    run_combine(exchange, round, form_);
    round.check_tokens();
  }
  void combine(const Scenario& scenario) { combine(exchange_, scenario); }

 private:
  Exchange& exchange_;
  HandleMemory handle_;
  Form form_;
};

// Forward through as many layers as large models have, in FP8, then back in reverse in BF16 on another exchange, whose
// shape is the same. All handles are alive at once.
constexpr std::uint64_t kLayers = 60;
void training(const Target& target, Reduction reduction, bool shared, bool are_short = false) {
  ScenarioSettings forward = settings_for("fp8_block128", reduction, 1, "ragged");
  ScenarioSettings backward = settings_for("bf16", reduction, 1, "ragged");
  forward.options.fused_shared_expert = backward.options.fused_shared_expert = shared;
  forward.options.short_handles = backward.options.short_handles = are_short;
  const char* const routings[] = {"ragged", "uniform", "some_none", "empty_ranks"};
  std::vector<Scenario> layers;
  std::vector<Scenario> gradients;
  for (std::uint64_t layer = 0; layer < kLayers; ++layer) {
    forward.seed = 20 + layer;
    forward.routing = routings[layer % std::size(routings)];
    layers.push_back(make_scenario(forward));
    gradients.push_back(with_other_tokens(layers.back(), backward, 100 + layer));
  }
  with_handles(target, kShape.ranks, "forward and backward through layers", [&](World& world) {
    Exchange there(world, kShape, forward.options);
    Exchange back(world, kShape, backward.options);
    for (const Form form : {Form::split, Form::one_call}) {
      std::vector<KeptRound> kept;
      for (const Scenario& layer : layers) {
        kept.emplace_back(there, layer, form);
        kept.back().combine(layer);
      }
      for (std::size_t layer = layers.size(); layer-- > 0;) {
        kept[layer].replay(back, gradients[layer]);   // the transpose of combine
        kept[layer].combine(back, gradients[layer]);  // the transpose of dispatch
      }
    }
  });
}

// D A, D B, C A, C B, and C A once more.
void micro_batches(const Target& target, Reduction reduction) {
  const Scenario a = make_scenario(settings_for("mxfp8", reduction, 3, "uniform"));
  const Scenario b = make_scenario(settings_for("mxfp8", reduction, 4, "some_none"));
  with_handles(target, kShape.ranks, "two micro-batches on one exchange", [&](World& world) {
    Exchange exchange(world, kShape, a.settings.options);
    for (int repeat = 0; repeat < 4; ++repeat) {
      const Form form = repeat % 2 == 0 ? Form::split : Form::one_call;
      KeptRound first(exchange, a, form);
      KeptRound second(exchange, b, form);
      first.combine(a);
      second.combine(b);
      first.combine(a);
    }
  });
}

void any_sequence(const Target& target, const Shape& shape, Reduction reduction, std::uint64_t seed,
                  bool are_short = false) {
  ScenarioSettings first = settings_for("nvfp4", reduction, 1, "ragged");
  ScenarioSettings second = settings_for("bf16", reduction, 1, "ragged");
  first.shape = second.shape = shape;
  second.shape.hidden = 96;
  first.options.short_handles = second.options.short_handles = are_short;
  const HandleSequence sequence = make_handle_sequence({first, second}, seed, 16);
  with_handles(target, shape.ranks, "a sequence with handles, seed " + std::to_string(seed), [&](World& world) {
    std::vector<Exchange> exchanges;
    for (const ScenarioSettings& each : sequence.exchanges) exchanges.emplace_back(world, each.shape, each.options);
    run_handle_sequence(exchanges, sequence);
  });
}

// What the tensors say; other contents are each backend's own affair.
void refused_handles(const Target& target) {
  const Scenario scenario = make_scenario(settings_for("bf16", Reduction::by_rank, 5, "uniform"));
  on_ranks(target, kShape.ranks, "handles that are refused", [&](World& world) {
    const int rank = world.rank();
    Exchange exchange(world, kShape, scenario.settings.options);
    HandleMemory handle(exchange);
    RankRound round(scenario, rank);
    round.out.handle = handle.tensor();
    if (!world.capabilities().handles) {
      expect_error(rank, "a handle", ErrorKind::unsupported, {"handle"},
                   [&] { exchange.dispatch(round.in, round.out); });
      return run_round(exchange, scenario, Form::one_call);
    }
    exchange.dispatch(round.in, round.out);
    DispatchInput in = input_with(round, handle);
    in.topk_ids = round.in.topk_ids;
    expect_error(rank, "ids and a handle", ErrorKind::invalid_argument, {"topk_ids", "handle"},
                 [&] { exchange.dispatch(in, round.out); });
    in = input_with(round, handle);
    in.topk_weights = round.in.topk_weights;
    expect_error(rank, "weights and a handle", ErrorKind::invalid_argument, {"topk_weights", "handle"},
                 [&] { exchange.dispatch(in, round.out); });
    CombineInput back = combine_input_with(round, handle);
    back.handle.shape[0] -= 16;
    expect_error(rank, "a handle too short", ErrorKind::invalid_argument, {"handle_bytes"},
                 [&] { exchange.combine(back, round.combine_out); });
    exchange.combine(round.combine_in, round.combine_out);
    round.check_tokens();
    exchange.dispatch(input_with(round, handle), round.out);
    expect_error(rank, "combine without the handle of its dispatch", ErrorKind::out_of_order, {"handle"},
                 [&] { exchange.combine(round.combine_in, round.combine_out); });
    exchange.combine(combine_input_with(round, handle), round.combine_out);
    round.check_tokens();
  });
}

// A short handle that has been somewhere else since, on another exchange, after many rounds; and one with more bytes
// than it takes.
void moved_short_handles(const Target& target) {
  ScenarioSettings settings = settings_for("fp8_block128", Reduction::by_rank, 7, "ragged");
  settings.options.short_handles = true;
  const Scenario first = make_scenario(settings), again = with_other_tokens(first, settings, 8);
  settings.options.format = format_named("bf16");
  const Scenario elsewhere = with_other_tokens(first, settings, 9);
  with_handles(target, kShape.ranks, "short handles that are moved", [&](World& world) {
    Exchange exchange(world, kShape, first.settings.options);
    HandleMemory tight(exchange, first), roomy(tight.tensor().shape[0] + 32);
    for (HandleMemory* handle : {&tight, &roomy}) {
      RankRound round(first, world.rank());
      round.out.handle = handle->tensor();
      run_dispatch(exchange, round, Form::one_call);
    }
    for (int i = 0; i < 40; ++i) run_round(exchange, again, i % 2 == 0 ? Form::split : Form::one_call);
    const auto moved = std::make_unique<HandleMemory>(tight);
    std::ranges::fill(tight.bytes(), kPoison);
    Exchange other(world, kShape, settings.options);
    for (HandleMemory* handle : {moved.get(), &roomy}) {
      RankRound round(again, world.rank()), there(elsewhere, world.rank());
      round.in = input_with(round, *handle);
      run_dispatch(exchange, round, Form::split);
      round.check_rows();
      there.combine_in.src_info = {};
      there.combine_in = combine_input_with(there, *handle);
      run_combine(other, there, Form::one_call);
      there.check_tokens();
    }
  });
}

// Bytes that a short handle does not fit into, and bytes that are none.
void refused_short_handles(const Target& target) {
  ScenarioSettings settings = settings_for("bf16", Reduction::by_rank, 5, "uniform");
  settings.options.short_handles = true;
  const Scenario scenario = make_scenario(settings);
  with_handles(target, kShape.ranks, "short handles that are refused", [&](World& world) {
    const int rank = world.rank();
    Exchange exchange(world, kShape, settings.options);
    const std::int64_t takes = handle_bytes_of(exchange, scenario);
    HandleMemory small(takes - 16), none(64), whole(exchange), tight(takes);
    const auto refuse = [&](const char* what, const std::vector<std::string>& fragments, HandleMemory& handle) {
      RankRound round(scenario, rank);
      expect_error(rank, what, ErrorKind::invalid_argument, fragments,
                   [&] { exchange.combine(combine_input_with(round, handle), round.combine_out); });
    };
    RankRound round(scenario, rank);
    round.out.handle = none.tensor();
    expect_error(rank, "bytes for no header", ErrorKind::invalid_argument, {"handle", "short_handle_bytes"},
                 [&] { exchange.dispatch(round.in, round.out); });
    round.check_untouched();
    round.out.handle = small.tensor();
    expect_error(rank, "16 bytes too few", ErrorKind::invalid_argument,
                 {"handle is u8", "takes " + std::to_string(takes) + " bytes", "short_handle_bytes"},
                 [&] { exchange.dispatch(round.in, round.out); });
    round.check_rows();
    exchange.combine(round.combine_in, round.combine_out);
    round.check_tokens();
    refuse("memory in which none was left", {"left none", std::to_string(takes)}, small);
    round.out.handle = whole.tensor();
    exchange.dispatch(round.in, round.out);
    whole.bytes().resize(static_cast<std::size_t>(takes));
    refuse("a whole one that is cut", {"a whole one", std::to_string(exchange.layout().handle_bytes)}, whole);
    round.out.handle = tight.tensor();
    exchange.dispatch(round.in, round.out);
    HandleMemory cut = tight;
    cut.bytes().resize(cut.bytes().size() - 16);
    refuse("a short one that is cut", {"messages", std::to_string(takes)}, cut);
    tight.bytes()[0] ^= std::byte{1};
    refuse("another first word", {"first word"}, tight);
    tight.bytes()[0] ^= std::byte{1};
    exchange.combine(combine_input_with(round, tight), round.combine_out);
    round.check_tokens();
  });
}

// I22: rank 0 gives a replay a handle of another dispatch than the others do, of the same exchange or of another one
// whose dispatch has the same number. CPU ranks throw in the call; ranks of GPUs when the words of the others have
// come, which no call waits for.
void other_handles(const Target& target, bool of_exchanges) {
  const Scenario first = make_scenario(settings_for("bf16", Reduction::by_rank, 5, "uniform"));
  const Scenario second = make_scenario(settings_for("bf16", Reduction::by_rank, 6, "uniform"));
  with_handles(target, kShape.ranks, "handles of different dispatches", [&](World& world) {
    const int rank = world.rank();
    Exchange exchange(world, kShape, first.settings.options);
    std::optional<Exchange> other;
    if (of_exchanges) other.emplace(world, kShape, first.settings.options);
    HandleMemory of_first(exchange), of_second(exchange);
    RankRound a(first, rank), b(second, rank);
    a.out.handle = of_first.tensor();
    b.out.handle = of_second.tensor();
    exchange.dispatch(a.in, a.out);
    (other ? *other : exchange).dispatch(b.in, b.out);
    world.barrier();  // no rank may be told of the call below in one of these
    expect_error(
        rank, "a handle of another dispatch", ErrorKind::invalid_argument, {"handle of another dispatch"}, [&] {
          a.out.handle = b.out.handle = {};
          exchange.dispatch(rank == 0 ? input_with(a, of_first) : input_with(b, of_second), rank == 0 ? a.out : b.out);
          check_until_told(exchange);
        });
  });
}

}  // namespace

void add_handle_cases(Cases& cases) {
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact, Reduction::either}) {
    const std::string name = to_string(reduction);
    cases.push_back({"handles/training_" + name, "handles kept forward, used backward on another exchange", true,
                     [reduction](const Target& target) { training(target, reduction, false); }});
    cases.push_back({"handles/micro_batches_" + name, "dispatch A, dispatch B, combine A, combine B, combine A", true,
                     [reduction](const Target& target) { micro_batches(target, reduction); }});
    cases.push_back({"handles/any_sequence_" + name, "dispatches and combines with handles in any order", true,
                     [reduction](const Target& target) {
                       any_sequence(target, {.ranks = 3, .experts = 7, .top_k = 3, .max_tokens = 6, .hidden = 64},
                                    reduction, 1);
                     }});
    cases.push_back({"handles/two_ranks_" + name, "dispatches and combines with handles in any order, on 2 ranks", true,
                     [reduction](const Target& target) {
                       any_sequence(target, {.ranks = 2, .experts = 5, .top_k = 3, .max_tokens = 6, .hidden = 64},
                                    reduction, 2);
                     }});
  }
  cases.push_back({"handles/shared_expert", "handles kept forward, with a fused shared expert", true,
                   [](const Target& target) { training(target, Reduction::by_rank, true); }});
  for (std::uint64_t seed = 3; seed <= 6; ++seed)
    cases.push_back({"handles/sequence_" + std::to_string(seed), "dispatches and combines with handles in any order",
                     false, [seed](const Target& target) {
                       any_sequence(target, {.ranks = 4, .experts = 9, .top_k = 4, .max_tokens = 17, .hidden = 64},
                                    seed % 2 == 0 ? Reduction::exact : Reduction::by_rank, seed);
                     }});
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact})
    cases.push_back(
        {std::string("handles/short_training_") + to_string(reduction),
         "short handles kept forward, used backward on another exchange", true,
         [reduction](const Target& target) { training(target, reduction, reduction == Reduction::by_rank, true); }});
  for (std::uint64_t seed = 7; seed <= 10; ++seed)
    cases.push_back({"handles/short_sequence_" + std::to_string(seed),
                     "dispatches and combines with whole and short handles in any order", seed < 9,
                     [seed](const Target& target) {
                       any_sequence(target, {seed % 4 == 3 ? 2 : 4, 9, 4, 17, 64},
                                    seed % 2 == 0 ? Reduction::exact : Reduction::by_rank, seed, true);
                     }});
  cases.push_back(
      {"handles/short_moved", "short handles in other memory, on another exchange", true, moved_short_handles});
  cases.push_back({"handles/short_refused", "short handles with too few bytes", true, refused_short_handles});
  cases.push_back({"handles/of_different_dispatches", "ranks that give one call different handles", true,
                   [](const Target& target) { other_handles(target, false); }});
  cases.push_back({"handles/of_different_exchanges", "ranks that give one call handles of different exchanges", true,
                   [](const Target& target) { other_handles(target, true); }});
  cases.push_back({"handles/refused", "ids beside a handle, and handles of a wrong size", true, refused_handles});
}

}  // namespace ferry::conformance
