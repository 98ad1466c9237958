// `ferry demo`: a small MoE layer from real text, on 4 ranks, in each token format, checked, with a picture of its
// routing.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

#include "tool/commands/commands.h"
#include "tool/commands/options.h"
#include "tool/demo/demo_model.h"
#include "tool/demo/heatmap_svg.h"
#include "tool/io/pending_file.h"
#include "tool/layer/layer_check.h"
#include "tool/layer/layer_parts.h"
#include "tool/ranks/job.h"
#include "tool/text/progress.h"
#include "tool/text/table.h"

namespace ferry::app {
namespace {

constexpr int kRanks = 4;
constexpr std::int64_t kFewestTokens = 64;
constexpr std::int64_t kMostTokens = 20000;

struct FormatResult {
  AnyFormat format;
  LayerReport report;
  CheckResult check;     // against the oracle of the tokens as sent
  double max_error = 0;  // against the oracle of the tokens as given, over the RMS of its output
  double rms_error = 0;
};

struct DemoCommand : DemoArguments {
  void run() const;
  void finish(const Backend& chosen, const Ranks& ranks, const DemoModel& model,
              const std::vector<FormatResult>& results, PendingFile& picture) const;
};

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  if (!file || !(content << file.rdbuf())) throw Error(ErrorKind::io, fmt::format("--text {}: cannot be read", path));
  return content.str();
}

void measure_errors(FormatResult& result, const std::vector<float>& output, const std::vector<double>& exact) {
  double errors = 0, values = 0;
  for (std::size_t i = 0; i < output.size(); ++i) {
    const double error = std::abs(output[i] - exact[i]);
    result.max_error = std::max(result.max_error, error);
    errors += error * error;
    values += exact[i] * exact[i];
  }
  result.rms_error = std::sqrt(errors / values);
  result.max_error /= std::sqrt(values / static_cast<double>(output.size()));
}

std::vector<FormatResult> run_formats(const Ranks& ranks, const Layer& layer) {
  const std::span<const AnyFormat> formats = all_formats();
  Progress progress("demo: formats", static_cast<std::int64_t>(formats.size()));
  std::vector<double> exact;
  if (ranks.has_first()) exact = oracle_values(layer, {.ranks = kRanks}, OracleTokens::as_given);
  std::vector<float> output(static_cast<std::size_t>(layer.tokens) * static_cast<std::size_t>(layer.hidden));
  std::vector<FormatResult> results;
  for (const AnyFormat& format : formats) {
    const LayerOptions options{.ranks = kRanks, .format = format};
    FormatResult result{format, run_layer(ranks, layer, options, output.data()), {}};
    gather_output(ranks, layer, output.data(), kDefaultDeadline);
    if (ranks.has_first()) {
      result.check = check_layer(layer, options, output.data(), OracleTokens::as_sent);
      measure_errors(result, output, exact);
    }
    results.push_back(result);
    progress.advance();
  }
  return results;
}

Table format_table(const std::vector<FormatResult>& results) {
  Table table({{"format", "format", true},
               {"message_bytes", "bytes a token"},
               {"dispatch_bytes", "dispatched"},
               {"share_of_bf16", "of bf16"},
               {"wire_bytes", "with combine"},
               {"rms_error", "RMS error"},
               {"max_error", "max error"},
               {"dispatch_seconds", "dispatch"},
               {"combine_seconds", "combine"},
               {"ok", "oracle"}});
  const auto bf16_bytes = static_cast<double>(results.front().report.dispatch_bytes);
  for (const FormatResult& result : results) {
    const double share = static_cast<double>(result.report.dispatch_bytes) / bf16_bytes;
    table.add_row({text_cell(result.format.name()),
                   count_cell(static_cast<std::int64_t>(result.report.message_bytes)),
                   bytes_cell(result.report.dispatch_bytes),
                   {share, fmt::format("{:.0f} %", 100 * share)},
                   bytes_cell(result.report.wire_bytes),
                   {result.rms_error, fmt::format("{:.2f} %", 100 * result.rms_error)},
                   {result.max_error, fmt::format("{:.1f} %", 100 * result.max_error)},
                   {result.report.dispatch_seconds, human_seconds(result.report.dispatch_seconds)},
                   {result.report.combine_seconds, human_seconds(result.report.combine_seconds)},
                   yes_no_cell(result.check.ok, "ok", "FAILED")});
  }
  return table;
}

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ", ")); }

HeatMap routing_map(const DemoModel& model, const std::string& source) {
  const Layer& layer = model.layer();
  const std::int64_t window = std::max<std::int64_t>(1, (layer.tokens + 51) / 52);
  const std::int64_t windows = (layer.tokens + window - 1) / window;
  HeatMap map;
  map.title = "Which expert gets which words: " + source;
  map.subtitle = fmt::format(
      "{} tokens, top-{} of {} experts on {} ranks. Ferry carries each token once to every rank that owns one of its "
      "experts.",
      layer.tokens, layer.top_k, layer.experts, kRanks);
  map.x_title = fmt::format("position in the text (token number; a column is {} tokens)", window);
  map.cell_meaning = "tokens that a column sends to an expert";
  map.total_title = "tokens in all";
  map.label_title = "words it gets more than others do";
  for (std::int64_t column = 0; column < windows; ++column)
    map.x_ticks.push_back(column % 8 == 0 ? std::to_string(column * window) : "");
  for (int rank = 0; rank < kRanks; ++rank) map.groups.push_back(fmt::format("rank {}", rank));
  map.cells.assign(static_cast<std::size_t>(layer.experts), std::vector<int>(static_cast<std::size_t>(windows)));
  for (std::int64_t token = 0; token < layer.tokens; ++token)
    for (int k = 0; k < layer.top_k; ++k)
      ++map.cells[static_cast<std::size_t>(layer.id(token, k))][static_cast<std::size_t>(token / window)];
  for (int expert = 0; expert < layer.experts; ++expert) {
    map.line_names.push_back(fmt::format("expert {}", expert));
    map.line_labels.push_back(joined(model.words_of_expert(expert, 4)));
  }
  return map;
}

void DemoCommand::run() const {
  const Backend& chosen = choose_backend(backend, kRanks);
  require_ranks(chosen, kRanks, 1);
  const Ranks ranks = chosen.make(kRanks);
  std::string words(kDemoText);
  std::optional<PendingFile> picture;
  in_first_process(kDefaultDeadline, [&] {
    if (!text.empty()) words = read_text(text);
    picture.emplace("--svg", svg);
  });
  const DemoModel model(text_of_first_process(words));
  require_in_range("--text: words", model.layer().tokens, kFewestTokens, kMostTokens);
  const std::vector<FormatResult> results = run_formats(ranks, model.layer());
  in_first_process(kDefaultDeadline, [&] { finish(chosen, ranks, model, results, *picture); });
}

void DemoCommand::finish(const Backend& chosen, const Ranks& ranks, const DemoModel& model,
                         const std::vector<FormatResult>& results, PendingFile& picture) const {
  const Layer& layer = model.layer();
  const std::string drawing = heat_map_svg(routing_map(model, text.empty() ? "Moby-Dick, chapter 1" : text));
  picture.write(drawing.data(), drawing.size());
  picture.commit();

  const Table table = format_table(results);
  if (json) {
    print(Json{{"tokens", layer.tokens},
               {"hidden", layer.hidden},
               {"experts", layer.experts},
               {"top_k", layer.top_k},
               {"backend", chosen.name},
               {"ranks", kRanks},
               {"messages", results.front().report.messages},
               {"formats", table.json()},
               {"svg", svg}});
  } else {
    print(fmt::format(
        "{} tokens of {}, {} columns each, top-{} of {} experts on {} ranks ({}{} messages between ranks)\n\n{}\n",
        layer.tokens, text.empty() ? "Moby-Dick, chapter 1" : text, layer.hidden, layer.top_k, layer.experts, kRanks,
        ranks.on_gpus() ? "GPUs; " : "", results.front().report.messages, table.text()));
    print(fmt::format(
        "Errors are against the dense layer in float64 on unencoded tokens, over the RMS of its output: what the "
        "format costs.\n"
        "oracle: every element is within the rounding bound of the dense layer on the tokens as they were sent.\n"
        "The routing is drawn in {}\n",
        svg));
  }
  for (const FormatResult& result : results)
    if (!result.check.ok)
      throw CommandFailed(fmt::format("format {}: an element is {:.3g} times its bound away from the oracle",
                                      result.format.name(), result.check.worst_share));
}

}  // namespace

void run_demo_command(const DemoArguments& asked) { DemoCommand{asked}.run(); }

}  // namespace ferry::app
