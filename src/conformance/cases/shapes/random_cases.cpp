// Random configurations: everything that can be chosen, chosen by seed. A failure prints the settings.
#include <algorithm>
#include <iterator>

#include "conformance/cases/cases.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {
namespace {

using test::Random;

template <class T, std::size_t kCount>
T pick(Random& random, const T (&choices)[kCount]) {
  return choices[random.below(static_cast<int>(kCount))];
}

void draw_options(Random& random, ScenarioSettings& s) {
  const auto formats = all_formats();
  s.options = options_for(formats[static_cast<std::size_t>(random.below(static_cast<int>(formats.size())))].name(),
                          random.chance(0.5) ? Reduction::exact : Reduction::by_rank);
  const std::string format = s.options.format.name();
  if (random.chance(0.4)) {
    const auto results = result_formats();
    s.options.result_format = results[static_cast<std::size_t>(random.below(static_cast<int>(results.size())))];
  }
  s.options.tiled_scales = format == "mxfp8" && random.chance(0.5);
  s.options.expert_alignment = pick(random, {0, 0, 0, 1, 4, 8, 16, 32, 64, 128});
  s.options.fused_shared_expert = random.chance(0.3);
  s.options.workers = random.between(1, 3);
  s.options.skip_a2a = random.chance(0.15);
  if (s.options.skip_a2a && s.options.fused_shared_expert)
    s.options.allreduce_world_size = s.shape.ranks + random.below(3);
  if (format == "nvfp4") s.input_scale = pick(random, {1.0f, 37.5f, 0.25f});
  if (!s.options.skip_a2a && s.shape.ranks > 1 && random.chance(0.1)) {
    s.options.mask.assign(static_cast<std::size_t>(s.shape.ranks), false);
    s.options.mask[static_cast<std::size_t>(random.below(s.shape.ranks))] = true;
  }
}

ScenarioSettings draw_settings(Random& random, const Target& target) {
  ScenarioSettings s;
  s.shape = test::random_shape(random, std::min(target.max_ranks, 8));
  draw_options(random, s);
  if (!target.can_lose_ranks) s.options.mask.clear();
  const auto routings = test::routing_cases();
  s.routing = routings[static_cast<std::size_t>(random.below(static_cast<int>(routings.size())))].name;
  s.seed = random.bits() % 1'000'000;
  s.token_dtype = pick(random, {DType::bf16, DType::bf16, DType::f16, DType::f32});
  s.id_dtype = pick(random, {DType::i32, DType::i64});
  s.row_dtype = pick(random, {DType::bf16, DType::f32});
  s.output_dtype = pick(random, {DType::bf16, DType::f32});
  s.weights = pick(random, {WeightForm::none, WeightForm::array, WeightForm::array, WeightForm::hook});
  s.token_gap = random.chance(0.3) ? random.between(1, 40) : 0;
  s.row_gap = random.chance(0.3) ? random.between(1, 40) : 0;
  s.output_gap = random.chance(0.3) ? random.between(1, 40) : 0;
  s.spare_rows = random.chance(0.5) ? 0 : random.between(1, 300);
  s.epilogue = random.chance(0.15);
  s.unreduced = !s.epilogue && s.options.reduction == Reduction::exact && !s.options.fused_shared_expert &&
                s.weights == WeightForm::none;
  if (!s.unreduced) s.num_bias = pick(random, {0, 0, 0, 1, 2});
  s.bias_dtype = pick(random, {DType::bf16, DType::f32});
  if (s.options.reduction == Reduction::by_rank) {
    s.sum_order = pick(random, {SumOrder::by_rank, SumOrder::by_last_k});
    s.applies_weights = random.chance(0.8);
  }
  return s;
}

// Narrow weights, late ones and those that go home, sums of f16, and dynamic scales.
void draw_weights(Random& random, ScenarioSettings& s) {
  s.weight_dtype = pick(random, {DType::f32, DType::f32, DType::bf16, DType::f16});
  if (random.chance(0.2)) s.row_dtype = DType::f16;
  if (random.chance(0.2)) s.output_dtype = DType::f16;
  if (random.chance(0.2)) s.bias_dtype = DType::f16;
  s.options.returns_weights = random.chance(0.25);
  s.odd_ranks_return_none = random.chance(0.3);
  if (s.options.reduction == Reduction::by_rank && s.applies_weights && random.chance(0.3)) {
    s.options.late_weights = true;
    s.weights_at = pick(random, {WeightsAt::dispatch, WeightsAt::combine, WeightsAt::either});
  }
  s.options.dynamic_scales = s.options.format.name() == std::string("nvfp4") && random.chance(0.5);
  if (s.options.dynamic_scales) s.input_scale = 1.0f;
  s.global_scale_dtype = s.seed % 2 == 0 ? DType::bf16 : DType::f32;
  s.options.message_copies = random.chance(0.25) ? 4 : 2;
  if (s.options.late_weights || !random.chance(0.3)) return;
  s.chosen = s.options.reduction;
  s.options.reduction = Reduction::either;
}

// The exchange has another format besides, and the dispatch takes one of the two.
void draw_formats(Random& random, ScenarioSettings& s) {
  if (!random.chance(0.3)) return;
  const auto formats = all_formats();
  s.options.more_formats.resize(1);
  s.options.more_formats[0].format = formats[static_cast<std::size_t>(random.below(static_cast<int>(formats.size())))];
  s.options.more_formats[0].expert_alignment = pick(random, {0, 4, 128});
  s.format = random.below(2);
}

void run_seeds(const Target& target, std::uint64_t seed, int count) {
  Random random(seed);
  for (int i = 0; i < count; ++i) {
    ScenarioSettings settings = draw_settings(random, target);
    draw_weights(random, settings);
    draw_formats(random, settings);
    run_scenario(target, settings, random.chance(0.5) ? Form::split : Form::one_call);
  }
}

}  // namespace

void add_random_cases(Cases& cases) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed)
    cases.push_back({"random/seed_" + std::to_string(seed), "random configurations against the oracle", seed == 1,
                     [seed](const Target& target) { run_seeds(target, seed, 60); }});
}

}  // namespace ferry::conformance
