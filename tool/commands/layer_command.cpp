// `ferry layer`: an MoE layer on the user's tensors, from .npy files to a .npy file.
#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

#include "exchange/sizes/sizes.h"
#include "tool/commands/options/commands.h"
#include "tool/commands/options/options.h"
#include "tool/io/interrupts.h"
#include "tool/io/named_path.h"
#include "tool/layer/check/layer_check.h"
#include "tool/layer/dump/dump.h"
#include "tool/layer/experts/expert_place.h"
#include "tool/layer/inputs/layer_inputs.h"
#include "tool/layer/inputs/value_faults.h"
#include "tool/layer/layer_parts.h"
#include "tool/ranks/job/job.h"
#include "tool/text/progress.h"
#include "tool/text/table.h"

namespace ferry::app {
namespace {

struct LayerFiles;

std::size_t output_bytes(const Layer& layer) {
  return static_cast<std::size_t>(layer.tokens) * static_cast<std::size_t>(layer.hidden) * sizeof(float);
}

// Both comparisons of a layer that passed.
struct Checks {
  CheckResult as_sent;   // what rounding did
  CheckResult as_given;  // what the format and rounding did
};

struct LayerCommand : LayerArguments {
  void run() const;
  std::vector<NamedPath> inputs() const;
  std::string made_for() const;  // "exact of either"
  void require_files() const;
  void open(const Ranks& on, const LayerOptions& options, LayerFiles& files) const;
  LayerReport compute(const Ranks& on, const Layer& layer, const LayerOptions& options, LayerFiles& files,
                      float* values) const;
  void finish(const Layer& layer, const LayerOptions& options, const Backend& chosen, const LayerReport& report,
              LayerFiles& files, const float* values) const;
  Checks run_checks(const Layer& layer, const LayerOptions& options, const NonFinite& non_finite,
                    const float* values) const;
  void require_values(const Layer& layer, const LayerOptions& options, const NonFinite& non_finite) const;
  [[noreturn]] void fail_check(const std::string& what) const;
  Json json_report(const Backend& chosen, const LayerReport& report, const Layer& layer) const;
  void print_report(const Backend& chosen, const LayerReport& report, const Layer& layer, const NonFinite& non_finite,
                    const std::optional<Checks>& checks) const;
};

// What the first process has besides its ranks: the arrays, and the files that appear at the end.
struct LayerFiles {
  std::optional<LayerInputs> inputs;
  std::optional<NpyWriter> output;
  std::unique_ptr<Dump> dump;
  std::optional<OnInterrupt> interrupted;  // while there is a dump
  std::int64_t entries = 0;                // that name an expert
};

std::string LayerCommand::made_for() const {
  const Reductions reductions = reductions_named(reduction, combine);
  return fmt::format("{}{}{}", to_string(reductions.of_combine), reductions.choose() ? " of either" : "",
                     message_copies == LayerArguments{}.message_copies
                         ? ""
                         : fmt::format(", {} copies of message slots", message_copies));
}

std::vector<NamedPath> LayerCommand::inputs() const {
  return {{"--tokens", paths.tokens},          {"--topk-ids", paths.ids}, {"--topk-weights", paths.weights},
          {"--gate-up", paths.gate_up},        {"--down", paths.down},    {"--shared-gate-up", paths.shared_gate_up},
          {"--shared-down", paths.shared_down}};
}

// No file that is read, or written, is written over.
void LayerCommand::require_files() const {
  std::vector<NamedPath> others = inputs();
  others.push_back({"--dump", dump});
  require_distinct({{"--output", output}}, others);
  others.back() = {"--output", output};
  if (!dump.empty()) require_outside({"--dump", dump}, others);
}

void LayerCommand::open(const Ranks& on, const LayerOptions& options, LayerFiles& files) const {
  files.inputs.emplace(paths);
  const Layer& layer = files.inputs->layer();
  std::vector<MemoryNeed> needs = files.inputs->memory();
  for (MemoryNeed& need : layer_memory(layer, plan_layer(layer, options), options, on.on_gpus())) needs.push_back(need);
  needs.push_back({"--output " + output, output_bytes(layer)});
  for (const MemoryNeed& array : files.inputs->memory())  // each part is once more in the process that works on it
    if (on.is_part()) needs.push_back({array.what + " in the other processes", array.bytes});
  if (check) needs.push_back(check_memory(layer));
  require_memory(needs, memory_left());
  files.entries = files.inputs->check_ids();
  files.output.emplace("--output", output);
  if (dump.empty()) return;
  const Json said = {{"format", format},
                     {"hidden", layer.hidden},
                     {"scale_layout", to_string(options.format.scale_layout())},
                     {"input_scale", double{input_scale}}};
  files.dump = std::make_unique<Dump>(dump, ranks, said.dump(2) + "\n");
  files.interrupted.emplace([&files] { files.dump->drop_empty(); });
}

// Progress counts the rows of this process.
LayerReport LayerCommand::compute(const Ranks& on, const Layer& layer, const LayerOptions& options, LayerFiles& files,
                                  float* values) const {
  const std::int64_t row_count = files.entries + (layer.shared_inter != 0 ? layer.tokens : 0);
  Progress progress("layer: rows", std::max<std::int64_t>(row_count * on.here() / ranks, 1));
  const auto take = [&](int rank, const DumpedRank& dumped) { files.dump->write(rank, dumped); };
  const auto observe = [&](int rank, const RankRows& of_rank) {
    gather_rows(on, rank, dumped_rows(of_rank), options.deadline, take);
  };
  const LayerReport report = run_layer(
      on, layer, options, values, [&](std::int64_t done) { progress.advance(done); },
      dump.empty() ? RowsObserver() : RowsObserver(observe));
  gather_output(on, layer, values, options.deadline);
  return report;
}

void LayerCommand::finish(const Layer& layer, const LayerOptions& options, const Backend& chosen,
                          const LayerReport& report, LayerFiles& files, const float* values) const {
  const NonFinite non_finite = find_non_finite(values, layer.tokens, layer.hidden);
  std::optional<Checks> checks;
  if (check)
    checks = run_checks(layer, options, non_finite, values);
  else if (const std::string lost = find_lost_tokens(layer, options.format, input_scale).text("token", layer.tokens);
           !lost.empty())
    note(lost);
  files.output->begin(DType::f32, {layer.tokens, layer.hidden});
  files.output->write(values, output_bytes(layer));
  if (files.dump) files.dump->commit();
  files.output->commit();
  print_report(chosen, report, layer, non_finite, checks);
}

void LayerCommand::fail_check(const std::string& what) const {
  throw CommandFailed(fmt::format("--check: {}; {} is not written", what, output));
}

// What is compared next must be numbers, and the tokens must have arrived.
void LayerCommand::require_values(const Layer& layer, const LayerOptions& options, const NonFinite& non_finite) const {
  if (non_finite.values != 0)
    fail_check(fmt::format(
        "{} of {} values of the output are NaN or infinite, in {} of {} tokens, the first at token {}, column {} ({})",
        non_finite.values, layer.tokens * layer.hidden, non_finite.rows, layer.tokens, non_finite.first_row,
        non_finite.first_column, origin_of_non_finite(layer, paths, non_finite.first_row)));
  if (const NonFinite weights = find_non_finite_weights(layer); weights.values != 0)
    fail_check(fmt::format("--topk-weights {}: {} of the router weights are NaN or infinite, the first at [{}, {}]",
                           paths.weights, weights.values, weights.first_row, weights.first_column));
  const LossFinder lost = find_lost_tokens(layer, options.format, input_scale);
  if (const std::string text = lost.text("token", layer.tokens); !text.empty()) fail_check(text);
}

Checks LayerCommand::run_checks(const Layer& layer, const LayerOptions& options, const NonFinite& non_finite,
                                const float* values) const {
  require_values(layer, options, non_finite);
  const bool encodes = options.format.block() != 0;  // bf16 carries the tokens as they are
  const auto compare = [&](const char* what, OracleTokens tokens) {
    Progress progress(what, layer.tokens);
    return check_layer(layer, options, values, tokens, [&](std::int64_t done) { progress.advance(done); });
  };
  Checks checks;
  checks.as_sent = compare("check of the rounding: tokens", OracleTokens::as_sent);
  if (const CheckResult& failed = checks.as_sent; !failed.ok)
    fail_check(fmt::format("the error is {:.3g} times its bound at token {}, column {} (largest error {:.6g})",
                           failed.worst_share, failed.worst_token, failed.worst_column, failed.max_error));
  checks.as_given = encodes ? compare("check of the format: tokens", OracleTokens::as_given) : checks.as_sent;
  return checks;
}

void LayerCommand::run() const {
  const Backend& chosen = choose_backend(backend, ranks);
  require_ranks(chosen, ranks, nodes);
  expert_place_named(experts_on).require(chosen);
  note_repeated(chosen);
  note_unused_share_gpus(chosen);
  note_unused_input_scale(input_scale, format_named(format));
  require_files();
  if (!dump.empty() && rows != LayerArguments{}.rows)
    throw Error(ErrorKind::invalid_argument, "--dump: writes rows by_expert; leave out --rows");
  const Reductions reductions = reductions_named(reduction, combine);
  LayerOptions options{ranks,       format_named(format), reductions.of_combine,
                       input_scale, !dump.empty(),        std::chrono::seconds(deadline_seconds)};
  options.chooses = reductions.choose();
  options.message_copies = message_copies;
  options.rows = row_order_named(rows);
  options.results = result_format_named(results);
  options.encoded = encoded;
  options.experts = &expert_place_named(experts_on);
  set_job_deadline(options.deadline, "--deadline");
  const Ranks on = chosen.make(ranks, nodes);
  LayerFiles files;
  in_first_process(options.deadline, [&] { open(on, options, files); });
  const LayerParts parts(on, files.inputs ? &files.inputs->layer() : nullptr, options.deadline);
  const Pages values(output_bytes(parts.layer()));
  const LayerReport report = compute(on, parts.layer(), options, files, values.as<float>());
  in_first_process(options.deadline,
                   [&] { finish(parts.layer(), options, chosen, report, files, values.as<float>()); });
}

Json LayerCommand::json_report(const Backend& chosen, const LayerReport& report, const Layer& layer) const {
  const Reductions reductions = reductions_named(reduction, combine);
  return {
      {"tokens", layer.tokens},
      {"hidden", layer.hidden},
      {"experts", layer.experts},
      {"top_k", layer.top_k},
      {"backend", chosen.name},
      {"ranks", ranks},
      {"format", format},
      {"combine", to_string(reductions.of_combine)},
      {"reduction", to_string(reductions.of_exchange)},
      {"message_copies", message_copies},
      {"result_format", results},
      {"row_order", rows},
      {"given", encoded ? "encoded" : "bf16"},
      {"experts_on", experts_on},
      {"rounds", report.rounds},
      {"rows", report.rows},
      {"message_bytes", report.message_bytes},
      {"messages", report.messages},
      {"dispatch_bytes", report.dispatch_bytes},
      {"wire_bytes", report.wire_bytes},
      {"non_finite_blocks", report.non_finite_blocks},
      {"dispatch_seconds", report.dispatch_seconds},
      {"expert_seconds", report.expert_seconds},
      {"combine_seconds", report.combine_seconds},
      {"output", output},
  };
}

Json json_of(const Checks& checks) {
  const CheckResult& sent = checks.as_sent;
  const CheckResult& given = checks.as_given;
  return {
      {"ok", sent.ok},
      {"max_error", sent.max_error},
      {"bound_there", sent.bound_there},
      {"worst_share_of_bound", sent.worst_share},
      {"rms_error", sent.rms_error},
      {"rms_value", sent.rms_value},
      {"unencoded", {{"max_error", given.max_error}, {"rms_error", given.rms_error}, {"rms_value", given.rms_value}}}};
}

std::string percent(double part, double whole) {
  constexpr double kHundred = 100;
  const double value = whole > 0 ? kHundred * part / whole : 0;
  return value < kHundred ? fmt::format("{:.2g} %", value) : fmt::format("{:.0f} %", value);
}

// Where all of the output is so small, float32 and bf16 lose it, in whatever format the tokens travel.
constexpr double kLeastOfFloat = std::numeric_limits<float>::min();

// What the bound assumes of the experts' sums.
void add_sums(Table& table, const ExpertPlace& place, const Layer& layer) {
  const ExpertErrors errors = place.errors();
  table.add_row(
      {text_cell("sums"),
       text_cell(fmt::format("the bound lets the experts on {} err in a sum of {} products by {:.2g} of their "
                             "magnitudes, and by {:.2g} in one of {}{} (docs/numerics-of-experts.md)",
                             place.where(), layer.hidden, errors.of_sum(layer.hidden), errors.of_sum(layer.inter),
                             layer.inter, errors.rounds_rows ? "; decoded rows are rounded to bf16 before" : ""))});
}

// What the comparison with the tokens as they were sent found.
std::string rounding_text(const CheckResult& sent) {
  if (sent.max_error == 0)
    return fmt::format("ok: no error; RMS of the output from the tokens as sent {:.3g}", sent.rms_value);
  return fmt::format(
      "ok: largest error {:.3g}, where the bound is {:.3g}; no error is more than {:.2g} % of its bound; RMS error "
      "{:.3g}, RMS of the output from the tokens as sent {:.3g}",
      sent.max_error, sent.bound_there, 100 * sent.worst_share, sent.rms_error, sent.rms_value);
}

// `formats`: that of the tokens, and of the results where it is another than bf16, since both cost accuracy.
void add_checks(Table& table, const Checks& checks, const std::string& formats) {
  const CheckResult& given = checks.as_given;
  table.add_row({text_cell("check"), text_cell(rounding_text(checks.as_sent))});
  if (given.rms_value < kLeastOfFloat) {
    table.add_row(
        {text_cell("format"),
         text_cell(given.rms_value == 0
                       ? std::string("the output is 0 everywhere, so nothing can be said of the format")
                       : fmt::format("the RMS of the output, {:.3g}, is below {:.3g}, the least normal float32: "
                                     "what is lost is lost there, and nothing can be said of {}",
                                     given.rms_value, kLeastOfFloat, formats))});
    return;
  }
  table.add_row({text_cell("format"),
                 text_cell(fmt::format("{} beside unencoded tokens: RMS error {:.3g} ({} of the RMS of the output from "
                                       "unencoded tokens), largest error {:.3g} ({} of that RMS, {:.3g})",
                                       formats, given.rms_error, percent(given.rms_error, given.rms_value),
                                       given.max_error, percent(given.max_error, given.rms_value), given.rms_value))});
}

void LayerCommand::print_report(const Backend& chosen, const LayerReport& report, const Layer& layer,
                                const NonFinite& non_finite, const std::optional<Checks>& checks) const {
  if (json) {
    Json whole = json_report(chosen, report, layer);
    whole["non_finite_outputs"] = non_finite.values;
    if (checks) whole["check"] = json_of(*checks);
    const ExpertErrors errors = expert_place_named(experts_on).errors();
    if (checks)
      whole["check"]["sum_error"] = {{"hidden", errors.of_sum(layer.hidden)}, {"inter", errors.of_sum(layer.inter)}};
    return print(whole);
  }
  Table table({{"quantity", "quantity", true}, {"value", "value", true}});
  const auto row = [&](const char* name, const std::string& value) {
    table.add_row({text_cell(name), text_cell(value)});
  };
  row("layer", fmt::format("{} tokens x {}, top-{} of {} experts{}", layer.tokens, layer.hidden, layer.top_k,
                           layer.experts, layer.shared_inter != 0 ? " and a shared one" : ""));
  const std::string formats = results == LayerArguments{}.results ? format : format + " and results in " + results;
  row("exchange", fmt::format("{} ({}), {}, {}, {}", counted(ranks, "rank"), chosen.ranks_are, formats, made_for(),
                              counted(report.rounds, "round")));
  row("wire", fmt::format("{} message{} of {}: {}; with routing and results {}",
                          count_cell(static_cast<std::int64_t>(report.messages)).text, report.messages == 1 ? "" : "s",
                          human_bytes(report.message_bytes), human_bytes(report.dispatch_bytes),
                          human_bytes(report.wire_bytes)));
  row("time",
      fmt::format("dispatch {}, experts {} on {}, combine {}; {}, with no warm-up before (ferry bench warms up first)",
                  human_seconds(report.dispatch_seconds), human_seconds(report.expert_seconds),
                  expert_place_named(experts_on).where(), human_seconds(report.combine_seconds),
                  report.rounds == 1 ? "one round" : fmt::format("all {} rounds", report.rounds)));
  if (report.non_finite_blocks != 0)
    row("non-finite", fmt::format("{} of the tokens with a NaN or an infinity",
                                  counted(static_cast<std::int64_t>(report.non_finite_blocks), "block")));
  if (non_finite.values != 0)
    row("non-finite",
        fmt::format("{} of the output in {} of {} tokens; token {}, column {}: {}", counted(non_finite.values, "value"),
                    non_finite.rows, layer.tokens, non_finite.first_row, non_finite.first_column,
                    origin_of_non_finite(layer, paths, non_finite.first_row)));
  if (checks && layer.tokens == 0) row("check", "no tokens, so nothing to compare");
  if (checks && layer.tokens != 0) add_checks(table, *checks, formats);
  if (checks && layer.tokens != 0) add_sums(table, expert_place_named(experts_on), layer);
  if (!dump.empty()) row("dump", fmt::format("{}/rank<r>/*.npy (docs/rows.md)", dump));
  row("output", output);
  print(table.text());
}

}  // namespace

void run_layer_command(const LayerArguments& asked) { LayerCommand{asked}.run(); }

}  // namespace ferry::app
