#include "gpu/hooks/hook_cases.h"

#include <utility>

#include "support/own_formats.h"

namespace ferry::test {
namespace {

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

// Handles and orders of rows. Unless the reduction is exact, a replay asks the router's weights again.
void add_cases_of_handles(std::vector<HookCase>& cases) {
  const HookCase all{.name = "handles",
                     .format = format_named("nvfp4"),
                     .make = make_nvfp4_with_all,
                     .weight = true,
                     .epilogue = true,
                     .handles = true};
  cases.insert(cases.end(), {all, exact_of(all, "handles_exact")});
  for (const auto& [order, name] :
       {std::pair(RowOrder::by_source, "handles_by_source"), std::pair(RowOrder::padded, "handles_padded")}) {
    HookCase ordered = all;
    ordered.name = name;
    ordered.format = format_named("bf16");
    ordered.make = make_bf16_with_all;
    ordered.order = order;
    cases.push_back(ordered);
  }
}

}  // namespace

const std::vector<HookCase>& hook_cases() {
  static const std::vector<HookCase> kCases = [] {
    std::vector<HookCase> cases;
    add_cases_of_hooks(cases);
    add_cases_of_many_tokens(cases);
    add_cases_of_own_formats(cases);
    add_cases_of_handles(cases);
    return cases;
  }();
  return kCases;
}

}  // namespace ferry::test
