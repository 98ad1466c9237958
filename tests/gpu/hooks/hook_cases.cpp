#include "gpu/hooks/hook_cases.h"

#include <string>

#include "gpu/device_round.h"
#include "support/own_formats.h"

namespace ferry::test {
namespace {

using conformance::Scenario;
using conformance::ScenarioSettings;
using cuda::cuda_check;
using cuda::DeviceMemory;

constexpr int kMasked = 1;

// Takes from a round what hooks give in its place. Sums that an epilogue adds up begin at zero.
HookValues take_values(const HookCase& each, const Scenario& scenario, const DeviceMemory& scale, DeviceRound& round) {
  HookValues values;
  values.late_from = each.late_from;
  values.top_k = scenario.settings.shape.top_k;
  values.hidden = scenario.settings.shape.hidden;
  cuda_check(cudaMemcpy(scale.data(), &scenario.settings.input_scale, sizeof(float), cudaMemcpyHostToDevice),
             "cudaMemcpy");
  values.input_scale = reinterpret_cast<const float*>(scale.data());
  round.in.input_scale = nullptr;
  ConstTensor& weights = each.reduction == Reduction::by_rank ? round.in.topk_weights : round.combine_in.topk_weights;
  if (each.weight) {
    values.weights = static_cast<const float*>(weights.data);
    weights = {};
  }
  if (each.epilogue) {
    values.sums = static_cast<float*>(round.combine_out.tokens.data);
    const auto bytes = static_cast<std::size_t>(round.combine_out.tokens.elements()) * sizeof(float);
    cuda_check(cudaMemset(values.sums, 0, bytes), "cudaMemset");
    round.combine_out.tokens = {};
  }
  return values;
}

// The same case under another name, with `exact`.
HookCase exact_of(HookCase each, const char* name) {
  each.name = name;
  each.reduction = Reduction::exact;
  return each;
}
HookCase masked_of(HookCase each, const char* name) {
  each.name = name;
  each.shared = false;
  each.masked = true;
  return each;
}

void add_cases_of_hooks(std::vector<HookCase>& cases) {
  const HookCase all{.name = "all_by_rank",
                     .format = format_named("nvfp4"),
                     .make = make_nvfp4_with_all,
                     .weight = true,
                     .epilogue = true};
  const HookCase shared{.name = "all_with_shared",
                        .format = format_named("bf16"),
                        .make = make_bf16_with_all,
                        .weight = true,
                        .epilogue = true,
                        .shared = true};
  const HookCase masked = masked_of(shared, "all_masked");
  const HookCase epilogue{
      .name = "epilogue", .format = format_named("fp8_block128"), .make = make_fp8_with_epilogue, .epilogue = true};
  const HookCase weight{
      .name = "weight", .format = format_named("fp8_block128"), .make = make_fp8_with_weight, .weight = true};
  cases.insert(cases.end(), {all, exact_of(all, "all_exact"), shared, exact_of(shared, "all_exact_bf16"), masked,
                             exact_of(masked, "all_exact_masked"), epilogue, exact_of(epilogue, "epilogue_exact"),
                             weight, exact_of(weight, "weight_exact")});
}

void add_cases_of_many_tokens(std::vector<HookCase>& cases) {
  // So many that messages and results are stored, and blocks send or sum.
  const HookCase many{.name = "many_tokens",
                      .format = format_named("bf16"),
                      .make = make_bf16_with_all,
                      .weight = true,
                      .epilogue = true,
                      .tokens = 640,
                      .routing = "uniform"};
  // A part of every table that is large enough comes long after all messages. A rank that does not wait for it loses
  // rows.
  const HookCase late{.name = "late_part",
                      .format = format_named("fp8_block128"),
                      .make = make_fp8_with_weight,
                      .weight = true,
                      .tokens = 640,
                      .routing = "uniform",
                      .late_from = 512};
  HookCase ragged = late;
  ragged.name = "late_part_ragged";
  ragged.routing = "ragged";
  ragged.late_from = 128;
  cases.insert(cases.end(), {many, exact_of(many, "many_tokens_exact"), late, ragged});
}

// Formats of the program itself, without hooks and with them; a row's last block is short.
void add_cases_of_own_formats(std::vector<HookCase>& cases) {
  cases.push_back({.name = "own_format", .format = any_format<Int8Block64>(), .make = make_int8, .hidden = 352});
  cases.push_back({.name = "own_format_exact",
                   .format = any_format<Int8Block64>(),
                   .make = make_int8,
                   .reduction = Reduction::exact,
                   .shared = true,
                   .tokens = 640,
                   .routing = "uniform",
                   .hidden = 352});
  cases.push_back({.name = "own_format_with_all",
                   .format = any_format<Int8Block64>(),
                   .make = make_int8_with_all,
                   .weight = true,
                   .epilogue = true});
  cases.push_back({.name = "own_format_transposed",
                   .format = any_format<Int8Transposed>(),
                   .make = make_int8_transposed,
                   .tokens = 640,
                   .routing = "uniform",
                   .hidden = 352});
  cases.push_back(
      {.name = "own_format_tiled", .format = any_format<Int8Tiled>(), .make = make_int8_tiled, .hidden = 352});
}

}  // namespace

const std::vector<HookCase>& hook_cases() {
  static const std::vector<HookCase> kCases = [] {
    std::vector<HookCase> cases;
    add_cases_of_hooks(cases);
    add_cases_of_many_tokens(cases);
    add_cases_of_own_formats(cases);
    return cases;
  }();
  return kCases;
}

Scenario make_hook_scenario(const HookCase& each, int ranks) {
  ScenarioSettings settings;
  settings.shape = {ranks, 3 * ranks + 1, 3, each.tokens, each.hidden};
  settings.options = conformance::options_for("bf16", each.reduction);
  settings.options.format = each.format;
  settings.options.fused_shared_expert = each.shared;
  if (each.masked && ranks > 2) {
    settings.options.mask.assign(static_cast<std::size_t>(ranks), false);
    settings.options.mask[kMasked] = true;
  }
  settings.routing = each.routing;
  settings.output_dtype = each.epilogue ? DType::f32 : DType::bf16;
  settings.input_scale = each.format == format_named("nvfp4") ? 37.5f : 1.0f;
  settings.seed = 77;
  return conformance::make_scenario(settings);
}

void run_hook_rounds(World& world, int device, const HookCase& each, const Scenario& scenario) {
  const RankMask& mask = scenario.settings.options.mask;
  if (is_masked(mask, world.rank())) return;
  cuda_check(cudaSetDevice(device), "cudaSetDevice");  // where the tensors of this thread are made
  const auto calls = each.make(world, scenario.settings.shape, scenario.settings.options);
  for (int turn = 0; turn < 4; ++turn) {
    DeviceRound round(scenario, world.rank());
    const DeviceMemory scale(sizeof(float));
    const HookValues values = take_values(each, scenario, scale, round);
    cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    world.barrier(mask, conformance::kSuiteDeadline);
    HookValues at_dispatch = values;  // which calls no hook that is combine's: these would read null
    at_dispatch.sums = nullptr;
    if (each.reduction == Reduction::exact) at_dispatch.weights = nullptr;
    const bool split = turn % 2 == 1;
    calls->dispatch(round.in, round.out, at_dispatch, split);
    calls->combine(round.combine_in, round.combine_out, values, split);
    world.barrier(mask, conformance::kSuiteDeadline);  // all is enqueued: ranks may share a GPU, and fetch waits for it
    round.fetch();
    world.barrier(mask, conformance::kSuiteDeadline);
    round.host.check_rows();
    round.host.check_tokens();
  }
}

}  // namespace ferry::test
