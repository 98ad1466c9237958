// `ferry layer`: an MoE layer on the user's tensors, from .npy files to a .npy file.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "exchange/sizes.h"
#include "tool/commands/commands.h"
#include "tool/commands/options.h"
#include "tool/layer/dump.h"
#include "tool/layer/layer_check.h"
#include "tool/layer/layer_inputs.h"
#include "tool/layer/layer_parts.h"
#include "tool/ranks/job.h"
#include "tool/text/progress.h"
#include "tool/text/table.h"

namespace ferry::app {
namespace {

struct LayerFiles;

std::size_t output_bytes(const Layer& layer) {
  return static_cast<std::size_t>(layer.tokens) * static_cast<std::size_t>(layer.hidden) * sizeof(float);
}

struct LayerCommand : LayerArguments {
  void run() const;
  void open(const Ranks& on, const LayerOptions& options, LayerFiles& files) const;
  LayerReport compute(const Ranks& on, const Layer& layer, const LayerOptions& options, LayerFiles& files,
                      float* values) const;
  void finish(const Layer& layer, const LayerOptions& options, const Backend& chosen, const LayerReport& report,
              LayerFiles& files, const float* values) const;
  void print_report(const Backend& chosen, const LayerReport& report, const Layer& layer,
                    const std::optional<CheckResult>& checked) const;
};

CheckResult run_check(const Layer& layer, const LayerOptions& options, const float* output) {
  Progress progress("check: tokens", layer.tokens);
  return check_layer(layer, options, output, OracleTokens::as_sent,
                     [&](std::int64_t tokens) { progress.advance(tokens); });
}

void require_passed(const CheckResult& checked, const std::string& output) {
  if (checked.ok) return;
  throw CommandFailed(fmt::format(
      "--check: the error is {:.3g} times its bound at token {}, column {} (largest error {:.6g}); {} is not written",
      checked.worst_share, checked.worst_token, checked.worst_column, checked.max_error, output));
}

// What the first process has besides its ranks: the arrays, and the files that appear at the end.
struct LayerFiles {
  std::optional<LayerInputs> inputs;
  std::optional<NpyWriter> output;
  std::unique_ptr<Dump> dump;
  std::int64_t entries = 0;  // that name an expert
};

void LayerCommand::open(const Ranks& on, const LayerOptions& options, LayerFiles& files) const {
  files.inputs.emplace(paths);
  const Layer& layer = files.inputs->layer();
  std::vector<MemoryNeed> needs = files.inputs->memory();
  for (MemoryNeed& need : layer_memory(layer, plan_layer(layer, options), on.on_gpus())) needs.push_back(need);
  needs.push_back({"--output " + output, output_bytes(layer)});
  for (const MemoryNeed& array : files.inputs->memory())  // each part is once more in the process that works on it
    if (on.is_part()) needs.push_back({array.what + " in the other processes", array.bytes});
  if (check) needs.push_back(check_memory(layer));
  require_memory(needs, memory_left());
  files.entries = files.inputs->check_ids();
  files.output.emplace("--output", output);
  if (!dump.empty()) files.dump = std::make_unique<Dump>(dump, ranks);
}

// Progress counts the rows of this process.
LayerReport LayerCommand::compute(const Ranks& on, const Layer& layer, const LayerOptions& options, LayerFiles& files,
                                  float* values) const {
  const std::int64_t rows = files.entries + (layer.shared_inter != 0 ? layer.tokens : 0);
  Progress progress("layer: rows", std::max<std::int64_t>(rows * on.here() / ranks, 1));
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
  std::optional<CheckResult> checked;
  if (check) {
    checked = run_check(layer, options, values);
    require_passed(*checked, output);
  }
  files.output->begin(DType::f32, {layer.tokens, layer.hidden});
  files.output->write(values, output_bytes(layer));
  if (files.dump) files.dump->commit();
  files.output->commit();
  print_report(chosen, report, layer, checked);
}

void LayerCommand::run() const {
  const Backend& chosen = choose_backend(backend, ranks);
  require_ranks(chosen, ranks, nodes);
  require_input_scale(input_scale);
  require_in_range("--deadline", deadline_seconds, 1, kMaxDeadline.count() / 1000);
  const LayerOptions options{ranks,       format_named(format), reduction_named(combine),
                             input_scale, !dump.empty(),        std::chrono::seconds(deadline_seconds)};
  finish_job_within(options.deadline);
  const Ranks on = chosen.make(ranks, nodes);
  LayerFiles files;
  in_first_process(options.deadline, [&] { open(on, options, files); });
  const LayerParts parts(on, files.inputs ? &files.inputs->layer() : nullptr, options.deadline);
  const Pages values(output_bytes(parts.layer()));
  const LayerReport report = compute(on, parts.layer(), options, files, values.as<float>());
  in_first_process(options.deadline,
                   [&] { finish(parts.layer(), options, chosen, report, files, values.as<float>()); });
}

void LayerCommand::print_report(const Backend& chosen, const LayerReport& report, const Layer& layer,
                                const std::optional<CheckResult>& checked) const {
  Json json_report = {
      {"tokens", layer.tokens},
      {"hidden", layer.hidden},
      {"experts", layer.experts},
      {"top_k", layer.top_k},
      {"backend", chosen.name},
      {"ranks", ranks},
      {"format", format},
      {"combine", combine},
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
  if (checked)
    json_report["check"] = {{"ok", checked->ok},
                            {"max_error", checked->max_error},
                            {"bound_there", checked->bound_there},
                            {"worst_share_of_bound", checked->worst_share},
                            {"rms_error", checked->rms_error},
                            {"rms_value", checked->rms_value}};
  if (json) return print(json_report);

  Table table({{"quantity", "quantity", true}, {"value", "value", true}});
  const auto row = [&](const char* name, const std::string& value) {
    table.add_row({text_cell(name), text_cell(value)});
  };
  row("layer", fmt::format("{} tokens x {}, top-{} of {} experts{}", layer.tokens, layer.hidden, layer.top_k,
                           layer.experts, layer.shared_inter != 0 ? " and a shared one" : ""));
  row("exchange", fmt::format("{} ranks ({}), {}, {}, {} round{}", ranks, chosen.ranks_are, format, combine,
                              report.rounds, report.rounds == 1 ? "" : "s"));
  row("wire",
      fmt::format("{} messages of {}: {}; with routing and results {}",
                  count_cell(static_cast<std::int64_t>(report.messages)).text, human_bytes(report.message_bytes),
                  human_bytes(report.dispatch_bytes), human_bytes(report.wire_bytes)));
  row("time", fmt::format("dispatch {}, experts {}, combine {}", human_seconds(report.dispatch_seconds),
                          human_seconds(report.expert_seconds), human_seconds(report.combine_seconds)));
  if (report.non_finite_blocks != 0)
    row("non-finite", fmt::format("{} blocks of the tokens hold a NaN or an infinity", report.non_finite_blocks));
  if (checked)
    row("check",
        fmt::format(
            "ok: largest error {:.3g} (its bound {:.3g}), at most {:.1f} % of the bound anywhere; RMS {:.3g} of {:.3g}",
            checked->max_error, checked->bound_there, 100 * checked->worst_share, checked->rms_error,
            checked->rms_value));
  row("output", output);
  print(table.text());
}

}  // namespace

void run_layer_command(const LayerArguments& asked) { LayerCommand{asked}.run(); }

}  // namespace ferry::app
