// `ferry demo`: a small MoE layer from real text, in each token format, checked, with a picture of its routing and of
// what ranks send each other.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>

#include "tool/commands/options/commands.h"
#include "tool/commands/options/options.h"
#include "tool/demo/model/demo_model.h"
#include "tool/demo/model/demo_words.h"
#include "tool/demo/picture/demo_picture.h"
#include "tool/demo/picture/picture.h"
#include "tool/io/interrupts.h"
#include "tool/io/named_path.h"
#include "tool/layer/check/layer_check.h"
#include "tool/layer/layer_parts.h"
#include "tool/ranks/job/job.h"
#include "tool/text/progress.h"
#include "tool/text/table.h"

namespace ferry::app {
namespace {

constexpr int kTimings = 5;  // of which the table shows the median

struct FormatResult {
  AnyFormat format;
  LayerReport report;
  CheckResult check;     // against the oracle of the tokens as sent
  double max_error = 0;  // against the oracle of the tokens as given, over the RMS of its output
  double rms_error = 0;
};

// What is done so far, which Ctrl-C shows.
struct DemoSoFar {
  std::mutex guard;
  std::string at = "before the first format";
  std::vector<FormatResult> done;
};

struct DemoCommand : DemoArguments {
  void run() const;
  std::vector<FormatResult> run_formats(const Ranks& on, const Layer& layer, DemoSoFar& so_far) const;
  void say_interrupted(DemoSoFar& so_far) const;
  ChoiceTraffic traffic_of(const Layer& layer, const FormatResult& result) const;
  void finish(const Backend& chosen, const DemoModel& model, const DemoWords& words,
              const std::vector<FormatResult>& results, Picture& picture) const;
  Json json_report(const Backend& chosen, const DemoWords& words, const std::vector<FormatResult>& results,
                   const Layer& layer) const;
  std::string text_report(const Backend& chosen, const DemoWords& words, const std::vector<FormatResult>& results,
                          const Layer& layer) const;

  bool prints_picture() const { return !no_svg && Picture::is_standard_output(svg); }
  std::string source() const { return text.empty() ? "Moby-Dick, chapter 1" : text; }
};

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

void note_start(DemoSoFar& so_far, const AnyFormat& format) {
  const std::lock_guard lock(so_far.guard);
  so_far.at = fmt::format("in {}", format.name());
}

void note_done(DemoSoFar& so_far, const FormatResult& result) {
  const std::lock_guard lock(so_far.guard);
  so_far.at = "between two formats";
  so_far.done.push_back(result);
}

std::vector<FormatResult> DemoCommand::run_formats(const Ranks& on, const Layer& layer, DemoSoFar& so_far) const {
  const std::vector<AnyFormat> chosen = formats_named(formats);
  Progress progress("demo: formats", static_cast<std::int64_t>(chosen.size()));
  std::vector<double> exact;
  Progress::doing("the dense layer in float64");
  in_first_process(kDefaultDeadline, [&] { exact = oracle_values(layer, {.ranks = ranks}, OracleTokens::as_given); });
  std::vector<float> output(static_cast<std::size_t>(layer.tokens) * static_cast<std::size_t>(layer.hidden));
  std::vector<FormatResult> results;
  for (const AnyFormat& format : chosen) {
    Progress::doing(format.name());
    note_start(so_far, format);
    const LayerOptions options{.ranks = ranks, .format = format, .deadline = kDefaultDeadline, .repeats = kTimings};
    FormatResult result{format, run_layer(on, layer, options, output.data()), {}};
    gather_output(on, layer, output.data(), kDefaultDeadline);
    in_first_process(kDefaultDeadline, [&] {  // however long it takes, the others hear of it
      result.check = check_layer(layer, options, output.data(), OracleTokens::as_sent);
      measure_errors(result, output, exact);
    });
    results.push_back(result);
    note_done(so_far, result);
    progress.advance();
  }
  return results;
}

Table format_table(const std::vector<FormatResult>& results, int hidden) {
  Table table(
      {{"format", "format", true},
       {"message_bytes", "bytes a token", false, "codes and scales of a message, which carries one token"},
       {"dispatch_bytes", "dispatched", false, "all messages between ranks; on one rank there are none"},
       {"share_of_bf16", "of bf16", false, "bytes a token over those of bf16"},
       {"wire_bytes", "with combine", false, "all that ranks write at others: messages, routing and results"},
       {"rms_error", "RMS error", false,
        "against the dense layer in float64 on unencoded tokens, over the RMS of its output: what the format "
        "costs"},
       {"max_error", "max error", false, "the largest such error, over the same RMS"},
       {"dispatch_seconds", "dispatch", false,
        fmt::format("its time, the median of {}, after one to warm up; so is that of combine", kTimings)},
       {"combine_seconds", "combine"},
       {"ok", "oracle", false,
        "ok where every element is within the rounding bound of the dense layer on the tokens as they were sent"}});
  const auto bf16_bytes = static_cast<double>(message_bytes(format_named("bf16"), hidden));
  for (const FormatResult& result : results) {
    const double share = static_cast<double>(result.report.message_bytes) / bf16_bytes;
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

ChoiceTraffic DemoCommand::traffic_of(const Layer& layer, const FormatResult& result) const {
  return {ranks, layer.tokens * layer.top_k, result.report.messages_between, result.format.name(),
          result.report.message_bytes};
}

void DemoCommand::run() const {
  const Backend& chosen = choose_backend(backend, ranks);
  require_ranks(chosen, ranks, 1);
  note_repeated(chosen);
  note_unused_share_gpus(chosen);
  if (json && prints_picture())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("--svg {} and --json: both write to standard output; give the picture a file", svg));
  if (!no_svg && svg.empty())
    throw Error(ErrorKind::invalid_argument, "--svg: its value is empty; --no-svg leaves the picture out");
  if (!no_svg && !prints_picture()) require_distinct({{"--svg", svg}}, {{"--text", text}});
  DemoSoFar so_far;
  std::optional<OnInterrupt> interrupted([this, &so_far] { say_interrupted(so_far); });
  const Ranks on = chosen.make(ranks);
  std::string whole(kDemoText);
  std::optional<Picture> picture;
  in_first_process(kDefaultDeadline, [&] {
    if (!text.empty()) whole = read_text(text);
    picture.emplace(no_svg ? std::nullopt : std::optional(svg));
  });
  const DemoWords words(text_of_first_process(whole));
  const DemoModel model(words.words, seed);
  const std::vector<FormatResult> results = run_formats(on, model.layer(), so_far);
  interrupted.reset();  // what is left is to write it
  in_first_process(kDefaultDeadline, [&] { finish(chosen, model, words, results, *picture); });
}

void DemoCommand::say_interrupted(DemoSoFar& so_far) const {
  const std::lock_guard lock(so_far.guard);
  const Table table = format_table(so_far.done, DemoModel::kHidden);
  if (json) return print(Json{{"interrupted", so_far.at}, {"formats", table.json()}});
  std::string said = fmt::format("\nInterrupted {}; formats done: {} of {}.\n", so_far.at, so_far.done.size(),
                                 formats_named(formats).size());
  if (!so_far.done.empty()) said += "\n" + table.text();
  if (!prints_picture())
    print(said);
  else if (is_first_process())
    std::fputs(said.c_str(), stderr);
}

Json DemoCommand::json_report(const Backend& chosen, const DemoWords& words, const std::vector<FormatResult>& results,
                              const Layer& layer) const {
  const ChoiceTraffic traffic = traffic_of(layer, results.front());
  Json between = Json::array();
  for (int source = 0; source < ranks; ++source) {
    const auto line = traffic.messages.begin() + std::ptrdiff_t{source} * ranks;
    between.push_back(std::vector<std::uint64_t>(line, line + ranks));
  }
  return {{"tokens", layer.tokens},
          {"hidden", layer.hidden},
          {"experts", layer.experts},
          {"top_k", layer.top_k},
          {"backend", chosen.name},
          {"ranks", ranks},
          {"messages", traffic.between()},
          {"formats", format_table(results, layer.hidden).json()},
          {"svg", no_svg ? Json(nullptr) : Json(svg)},
          {"seed", seed},
          {"words", words.in_text},
          {"choices", traffic.choices},
          {"messages_between", between}};
}

std::string DemoCommand::text_report(const Backend& chosen, const DemoWords& words,
                                     const std::vector<FormatResult>& results, const Layer& layer) const {
  const ChoiceTraffic traffic = traffic_of(layer, results.front());
  std::string report = wrapped(fmt::format("{} tokens of {}, {} columns each, top-{} of {} experts on {} rank{}{}",
                                           layer.tokens, source(), layer.hidden, layer.top_k, layer.experts, ranks,
                                           ranks == 1 ? "" : "s", is_gpu_backend(chosen) ? " (GPUs)" : ""));
  report += wrapped(fmt::format("{} choices of an expert are {} messages, {} of them between ranks", traffic.choices,
                                traffic.all(), traffic.between()));
  if (words.is_cut())
    report +=
        wrapped(fmt::format("{} has {} words; the first {} are taken", source(), words.in_text, words.words.size()));
  const Table table = format_table(results, layer.hidden);
  report += fmt::format("\n{}\n{}", table.text(), table.footnote());
  if (!no_svg && !prints_picture()) report += fmt::format("The routing is drawn in {}\n", svg);
  return report;
}

void DemoCommand::finish(const Backend& chosen, const DemoModel& model, const DemoWords& words,
                         const std::vector<FormatResult>& results, Picture& picture) const {
  const Layer& layer = model.layer();
  picture.write(demo_picture(model, source(), traffic_of(layer, results.front())));
  if (json)
    print(json_report(chosen, words, results, layer));
  else if (prints_picture())
    std::fputs(text_report(chosen, words, results, layer).c_str(), stderr);
  else
    print(text_report(chosen, words, results, layer));
  for (const FormatResult& result : results)
    if (!result.check.ok)
      throw CommandFailed(fmt::format("format {}: an element is {:.3g} times its bound away from the oracle",
                                      result.format.name(), result.check.worst_share));
}

}  // namespace

void run_demo_command(const DemoArguments& asked) { DemoCommand{asked}.run(); }

}  // namespace ferry::app
