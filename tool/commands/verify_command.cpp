// `ferry verify`: the conformance suite on the backends of this machine.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "tool/commands/commands.h"
#include "tool/commands/options.h"
#include "tool/ranks/gpus.h"
#include "tool/ranks/job.h"
#include "tool/text/progress.h"
#include "tool/text/table.h"

#include "conformance/process_target.h"
#include "conformance/suite.h"

namespace ferry::app {

namespace {

struct Outcome {
  const char* result;  // "ok", "skipped" or "FAILED"
  std::string detail;
  double seconds;
};

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
  Job& job = joined_job() != nullptr ? *joined_job() : join(known.start_job(true));
  conformance::Target target = conformance::process_target(
      {known.name, &job.world(), [&job, nodes](int ranks) { return job.make_world(ranks, std::min(nodes, ranks)); }});
  target.hooks_may_throw = known.kind == WorldKind::shmem;  // a GPU's hooks are device functions
  target.has_skip_a2a = job.world().capabilities().skip_a2a;
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
  return suites;
}

Outcome run_case(const conformance::Case& wanted, const conformance::Target& target) {
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  try {
    wanted.run(target);
    return {"ok", wanted.what, seconds()};
  } catch (const conformance::Skipped& skipped) {
    return {"skipped", skipped.what(), seconds()};
  } catch (const std::exception& failure) {
    return {"FAILED", failure.what(), seconds()};
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

struct Counts {
  int ok = 0, skipped = 0, failed = 0;
};

Counts run_suite(const Suite& suite, const std::vector<const conformance::Case*>& cases, Table& table) {
  Counts counts;
  Progress progress(fmt::format("verify {}: cases", suite.known->name), static_cast<std::int64_t>(cases.size()));
  for (const conformance::Case* next : cases) {
    const Outcome outcome = run_case(*next, suite.run);
    const std::string result = outcome.result;
    counts.ok += result == "ok";
    counts.skipped += result == "skipped";
    counts.failed += result == "FAILED";
    table.add_row({text_cell(suite.known->name), text_cell(next->name), text_cell(result),
                   number_cell(outcome.seconds, 2), text_cell(outcome.detail)});
    progress.advance();
  }
  return counts;
}

}  // namespace

void run_verify_command(const VerifyArguments& asked) {
  if (asked.list) return list_cases(asked);
  const std::vector<Suite> suites = suites_of(asked.backend, asked.nodes);
  const std::vector<const conformance::Case*> cases = wanted_cases(asked);
  Table table({{"backend", "backend", true},
               {"case", "case", true},
               {"result", "result", true},
               {"seconds", "seconds"},
               {"detail", "what it shows", true}});
  Counts all;
  std::string summary, failing;
  for (const Suite& suite : suites) {
    const Counts counts = run_suite(suite, cases, table);
    all = {all.ok + counts.ok, all.skipped + counts.skipped, all.failed + counts.failed};
    summary += fmt::format("Backend {} ({}): {} ok, {} skipped, {} failed.\n", suite.known->name,
                           suite.known->ranks_are, counts.ok, counts.skipped, counts.failed);
    if (counts.failed != 0) failing += fmt::format("{}{}", failing.empty() ? "" : ", ", suite.known->name);
  }
  Json missing = Json::object();
  for (const Backend& known : backends()) {
    const std::string why = known.why_missing();
    if (why.empty()) continue;
    missing[known.name] = why;
    summary += fmt::format("Backend {} is not here: {}.\n", known.name, why);
  }
  in_first_process(kDefaultDeadline, [&] {  // for as long as its reader takes
    if (asked.json)
      print(Json{{"ok", all.ok},
                 {"skipped", all.skipped},
                 {"failed", all.failed},
                 {"cases", table.json()},
                 {"not_here", missing}});
    else
      print(table.text() + "\n" + summary);
  });
  if (all.failed != 0) throw CommandFailed(fmt::format("{} conformance cases failed on {}", all.failed, failing));
}

}  // namespace ferry::app
