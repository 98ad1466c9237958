// `ferry verify`: the conformance suite on the backends of this machine.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "tool/commands/options/commands.h"
#include "tool/commands/options/options.h"
#include "tool/commands/verify/verify_report.h"
#include "tool/io/interrupts.h"
#include "tool/ranks/gpus.h"
#include "tool/ranks/job/job.h"
#include "tool/text/progress.h"
#include "tool/text/table.h"

#include "conformance/suite.h"
#include "conformance/target/process_target.h"

namespace ferry::app {

namespace {

// GPU worlds whose calls take host memory, which is where the cases have theirs.
conformance::Target gpu_target() {
  const auto make = [](int ranks) { return gpus().make_worlds(gpus_of_ranks(ranks), true); };
  const int most = choose_backend("cuda").most_ranks();
  conformance::Target target;
  target.name = "cuda";
  target.max_ranks = most;
  target.run_ranks = [make](int ranks, const std::function<void(World&)>& body) { run_worlds(make(ranks), body); };
  target.make_worlds = [make, most](int ranks) {
    if (ranks < 1 || ranks > most) throw conformance::Skipped("a world of GPUs is made from a list of them");
    return make(ranks);
  };
  return target;
}

// Every process of the job runs the suite.
conformance::Target job_target(const Backend& known, int nodes) {
  require_ranks(known, known.most_ranks(), nodes);
  Job& job = joined_job() != nullptr ? *joined_job() : join(known.start_job, true, known.kind);
  conformance::Target target = conformance::process_target(
      {known.name, &job.world(), [&job, nodes](int ranks) { return job.make_world(ranks, std::min(nodes, ranks)); }});
  target.hooks_may_throw = !is_gpu_backend(known);  // a GPU's hooks are device functions
  return target;
}

conformance::Target target_of(const Backend& known, int nodes) {
  if (known.ranks == RanksAre::processes) return job_target(known, nodes);
  require_ranks(known, 1, nodes);
  return is_gpu_backend(known) ? gpu_target() : conformance::thread_target();
}

struct Suite {
  const Backend* known;
  conformance::Target run;
};

// The backend that was named; of `auto`, the job where there is one, else every one that works here.
std::vector<Suite> suites_of(const std::string& name, int nodes) {
  std::vector<Suite> suites;
  const bool all = name == "auto" && num_processes() == 1;
  for (const Backend& known : backends()) {
    const bool works = known.ranks == RanksAre::of_one_process && known.why_missing().empty();
    if (all ? works : &known == &choose_backend(name)) suites.push_back({&known, target_of(known, nodes)});
  }
  const auto is_of_gpus = [](const Suite& suite) { return is_gpu_backend(*suite.known); };
  if (!suites.empty() && std::none_of(suites.begin(), suites.end(), is_of_gpus))
    note_unused_share_gpus(*suites.front().known);
  return suites;
}

CaseOutcome run_case(const conformance::Case& wanted, const conformance::Target& target) {
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  conformance::RoundTally rounds;
  conformance::Target counted = target;
  counted.tally = &rounds;
  try {
    wanted.run(counted);
    return {CaseOutcome::Result::ok, wanted.what, seconds(), rounds.skipped};
  } catch (const conformance::Skipped& skipped) {
    return {CaseOutcome::Result::skipped, skipped.what(), seconds()};
  } catch (const std::exception& failure) {
    return {CaseOutcome::Result::failed, failure.what(), seconds()};
  }
}

std::vector<const conformance::Case*> wanted_cases(const VerifyArguments& asked) {
  std::vector<const conformance::Case*> wanted;
  for (const conformance::Case& known : conformance::all_cases())
    if ((!asked.quick || known.quick) && known.name.find(asked.only) != std::string::npos) wanted.push_back(&known);
  if (wanted.empty())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("--case {}: no case has this in its name; --list shows them", asked.only));
  return wanted;
}

void list_cases(const VerifyArguments& asked) {
  Table table({{"case", "case", true}, {"what", "what it shows", true}});
  for (const conformance::Case* known : wanted_cases(asked))
    table.add_row({text_cell(known->name), text_cell(known->what)});
  asked.json ? print(table.json()) : print(table.text());
}

void run_suite(const Suite& suite, const std::vector<const conformance::Case*>& cases, bool shows_progress,
               VerifyReport& report) {
  std::optional<Progress> progress;  // where no line is printed for each case
  if (shows_progress)
    progress.emplace(fmt::format("verify {}: cases", suite.known->name), static_cast<std::int64_t>(cases.size()));
  report.begin(*suite.known);
  for (const conformance::Case* next : cases) {
    report.start(next->name);
    report.add(next->name, run_case(*next, suite.run));
    if (progress) progress->advance();
  }
}

}  // namespace

std::vector<std::string> verify_case_names() {
  std::vector<std::string> names;
  for (const conformance::Case& known : conformance::all_cases()) names.push_back(known.name);
  return names;
}

void run_verify_command(const VerifyArguments& asked) {
  if (asked.list && asked.quiet) note("--quiet has no effect beside --list");
  if (asked.list) return list_cases(asked);
  const std::vector<const conformance::Case*> cases = wanted_cases(asked);
  std::vector<std::string> names;
  for (const conformance::Case* wanted : cases) names.push_back(wanted->name);
  VerifyReport report(asked, names);
  {
    const OnInterrupt interrupted([&report] { report.interrupt(); });
    const std::vector<Suite> suites = suites_of(asked.backend, asked.nodes);
    report.expect(suites.size());
    for (const Suite& suite : suites) run_suite(suite, cases, asked.json && !asked.quiet, report);
    report.finish();
  }
  if (const std::string failure = report.failure(); !failure.empty()) throw CommandFailed(failure);
}

}  // namespace ferry::app
