// Cases over results that are not finite, or too large for their format: NaN, infinities, 6e4 and 3e38 among the rows
// of the experts and the weights.
#include "conformance/cases/cases.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {
namespace {

ScenarioSettings settings_for(const AnyFormat& results, Reduction reduction, bool unreduced) {
  ScenarioSettings settings;
  settings.shape = {.ranks = 3, .experts = 8, .top_k = 4, .max_tokens = 9, .hidden = 160};
  settings.options = options_for("mxfp8", reduction);
  settings.options.result_format = results;
  settings.seed = 71;
  settings.extremes = true;
  settings.unreduced = unreduced;
  if (unreduced) settings.weights = WeightForm::none;
  return settings;
}

// Sums in float32 as they are; then what bf16 and float16 make of them, and of rows that are such.
void in_every_format(const Target& target, Reduction reduction, bool unreduced) {
  for (const AnyFormat& results : result_formats())
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      if (dtype == DType::f16 && results.block() != 0) continue;
      ScenarioSettings settings = settings_for(results, reduction, unreduced);
      settings.row_dtype = settings.output_dtype = settings.bias_dtype = dtype;
      settings.num_bias = dtype == DType::f32 && !unreduced ? 1 : 0;
      settings.options.workers = dtype == DType::f32 ? 2 : 1;
      run_scenario(target, settings, dtype == DType::bf16 ? Form::split : Form::one_call);
    }
}

// Sums of the caller's own, and a shared expert, whose rows do not travel.
void in_other_rows(const Target& target) {
  for (const char* results : {"bf16", "f16", "fp8_block128", "nvfp4"}) {
    ScenarioSettings settings = settings_for(result_format_named(results), Reduction::by_rank, false);
    settings.options.row_orders = {RowOrder::by_source, RowOrder::by_expert};
    settings.row_orders = {RowOrder::by_source};
    settings.output_dtype = DType::f32;
    run_scenario(target, settings);
    settings.options.row_orders = {RowOrder::by_expert};
    settings.row_orders = {};
    settings.options.fused_shared_expert = true;
    settings.output_dtype = DType::bf16;
    run_scenario(target, settings, Form::one_call);
  }
}

}  // namespace

void add_extreme_cases(Cases& cases) {
  const auto add = [&](const char* name, Reduction reduction, bool unreduced) {
    cases.push_back({std::string("extremes/") + name, "results that are not finite or too large, in every format", true,
                     [=](const Target& target) { in_every_format(target, reduction, unreduced); }});
  };
  add("by_rank", Reduction::by_rank, false);
  add("exact", Reduction::exact, false);
  add("unreduced", Reduction::exact, true);
  cases.push_back({"extremes/other_rows", "the same of rows by_source, and with a shared expert", true, in_other_rows});
}

}  // namespace ferry::conformance
