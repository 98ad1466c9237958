#include "tool/commands/verify/verify_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "tool/ranks/job/job.h"

namespace ferry::app {
namespace {

using Result = CaseOutcome::Result;

Table empty_table(std::span<const std::string> case_names) {
  std::size_t longest = 0;
  for (const std::string& name : case_names) longest = std::max(longest, name.size());
  std::size_t longest_backend = 0;
  for (const Backend& known : backends()) longest_backend = std::max(longest_backend, std::string(known.name).size());
  constexpr std::size_t kResult = 7, kSeconds = 7;
  return Table({{"backend", "backend", true, "", longest_backend},
                {"case", "case", true, "", longest},
                {"result", "result", true, "", kResult},
                {"seconds", "seconds", false, "", kSeconds},
                {"detail", "what it shows", true}});
}

Cell result_cell(Result result) {
  if (result == Result::ok) return text_cell("ok", Tone::good);
  return result == Result::skipped ? text_cell("skipped", Tone::faint) : text_cell("FAILED", Tone::bad);
}

}  // namespace

VerifyReport::VerifyReport(const VerifyArguments& asked, std::span<const std::string> case_names)
    : asked_(asked), num_cases_(case_names.size()), table_(empty_table(case_names)) {}

void VerifyReport::expect(std::size_t backends) {
  const std::lock_guard lock(guard_);
  num_backends_ = backends;
}

void VerifyReport::begin(const Backend& backend) {
  const std::lock_guard lock(guard_);
  if (counts_.empty() && prints_rows()) in_first_process(kDefaultDeadline, [&] { print(table_.head()); });
  counts_.push_back({&backend});
}

void VerifyReport::start(const std::string& name) {
  const std::lock_guard lock(guard_);
  running_ = name;
}

void VerifyReport::add(const std::string& name, const CaseOutcome& outcome) {
  const std::lock_guard lock(guard_);
  Counts& counts = counts_.back();
  counts.ok += outcome.result == Result::ok ? 1 : 0;
  counts.skipped += outcome.result == Result::skipped ? 1 : 0;
  counts.failed += outcome.result == Result::failed ? 1 : 0;
  if (outcome.result == Result::skipped) ++counts.why_skipped[outcome.detail];
  if (outcome.result == Result::ok) counts.skipped_rounds += outcome.skipped_rounds;
  table_.add_row({text_cell(counts.backend->name), text_cell(name), result_cell(outcome.result),
                  number_cell(outcome.seconds, 2), text_cell(outcome.detail)});
  running_.clear();
  if (prints_rows() || (!asked_.json && outcome.result == Result::failed))
    in_first_process(kDefaultDeadline, [&] { print(table_.last_row()); });
}

VerifyReport::Counts VerifyReport::sum() const {
  Counts all{nullptr};
  for (const Counts& each : counts_) {
    all.ok += each.ok;
    all.skipped += each.skipped;
    all.failed += each.failed;
  }
  return all;
}

// A reader of "0 failed" must see that most was not tried.
std::string VerifyReport::summary_of_skipped(const Counts& counts) {
  std::string text;
  if (counts.skipped > counts.ok + counts.failed) {
    constexpr std::size_t kMostReasons = 3;
    std::vector<std::pair<std::string, int>> reasons(counts.why_skipped.begin(), counts.why_skipped.end());
    std::stable_sort(reasons.begin(), reasons.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    text += fmt::format("  Most cases were skipped on {}:\n", counts.backend->name);
    int others = counts.skipped;
    for (std::size_t i = 0; i < std::min(reasons.size(), kMostReasons); ++i) {
      text += fmt::format("    {}: {}\n", counted(reasons[i].second, "case"), reasons[i].first);
      others -= reasons[i].second;
    }
    if (others != 0) text += fmt::format("    {}: for other reasons\n", counted(others, "case"));
  }
  if (counts.skipped_rounds != 0)
    text += fmt::format("  Of the cases that are ok, {} could not run on {}.\n",
                        counted(counts.skipped_rounds, "round"), counts.backend->name);
  return text;
}

std::string VerifyReport::summary() const {
  std::string text;
  for (const Counts& each : counts_) {
    text += fmt::format("Backend {} ({}): {} ok, {} skipped, {} failed.\n", each.backend->name, each.backend->ranks_are,
                        each.ok, each.skipped, each.failed);
    text += summary_of_skipped(each);
  }
  std::vector<std::string> missing;
  for (const Backend& known : backends())
    if (!known.why_missing().empty()) missing.emplace_back(known.name);
  if (!missing.empty()) text += fmt::format("Not here: {}; `ferry info` says why.\n", fmt::join(missing, ", "));
  return text;
}

Json VerifyReport::report() const {
  Json missing = Json::object();
  for (const Backend& known : backends())
    if (const std::string why = known.why_missing(); !why.empty()) missing[known.name] = why;
  const Counts all = sum();
  return {{"ok", all.ok},
          {"skipped", all.skipped},
          {"failed", all.failed},
          {"cases", table_.json()},
          {"not_here", missing}};
}

void VerifyReport::finish() {
  const std::lock_guard lock(guard_);
  in_first_process(kDefaultDeadline, [&] {  // for as long as its reader takes
    if (asked_.json) return print(report());
    print((asked_.quiet ? "" : "\n") + summary());
  });
}

void VerifyReport::interrupt() {
  constexpr std::chrono::seconds kPatience{1};  // with a reader that does not read
  const std::unique_lock lock(guard_, kPatience);
  if (!lock.owns_lock()) return;
  const std::string what = running_.empty() ? "between two cases" : "in " + running_;
  if (asked_.json) {
    Json json = report();
    json["interrupted"] = what;
    return print(json);
  }
  const Counts all = sum();
  print(fmt::format("\nInterrupted {}: {} of {} cases were done.\n{}", what, all.ok + all.skipped + all.failed,
                    num_cases_ * num_backends_, summary()));
}

std::string VerifyReport::failure() const {
  std::vector<std::string> names;
  for (const Counts& each : counts_)
    if (each.failed != 0) names.emplace_back(each.backend->name);
  return names.empty()
             ? ""
             : fmt::format("{} failed on {}", counted(sum().failed, "conformance case"), fmt::join(names, ", "));
}

}  // namespace ferry::app
