// `ferry verify`: the conformance suite on the backends of this machine.
#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "ferry/commands.h"
#include "ferry/options.h"
#include "ferry/progress.h"
#include "ferry/table.h"

#if FERRY_HAS_CONFORMANCE
#include "conformance/suite.h"
#endif

namespace ferry::app {
namespace {

struct VerifyCommand {
  std::string backend = "auto";
  std::string only;
  bool quick = false;
  bool list = false;
  bool json = false;

  void run() const;
};

#if FERRY_HAS_CONFORMANCE

struct Outcome {
  const char* result;  // "ok", "skipped" or "FAILED"
  std::string detail;
  double seconds;
};

Outcome run_case(const conformance::Case& wanted, const conformance::Backend& backend) {
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  try {
    wanted.run(backend);
    return {"ok", wanted.what, seconds()};
  } catch (const conformance::Skipped& skipped) {
    return {"skipped", skipped.what(), seconds()};
  } catch (const std::exception& failure) {
    return {"FAILED", failure.what(), seconds()};
  }
}

std::vector<const conformance::Case*> wanted_cases(const VerifyCommand& command) {
  std::vector<const conformance::Case*> wanted;
  for (const conformance::Case& known : conformance::all_cases())
    if ((!command.quick || known.quick) && known.name.find(command.only) != std::string::npos) wanted.push_back(&known);
  if (wanted.empty())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("--case {}: no case has this in its name; --list shows them", command.only));
  return wanted;
}

void list_cases(const VerifyCommand& command) {
  Table table({{"case", "case", true}, {"what", "what it shows", true}});
  for (const conformance::Case* known : wanted_cases(command))
    table.add_row({text_cell(known->name), text_cell(known->what)});
  command.json ? print(table.json()) : print(table.text());
}

void VerifyCommand::run() const {
  if (list) return list_cases(*this);
  const conformance::Backend found = conformance::thread_backend();
  const Backend& chosen = choose_backend(backend);
  const std::vector<const conformance::Case*> cases = wanted_cases(*this);
  Table table({{"backend", "backend", true},
               {"case", "case", true},
               {"result", "result", true},
               {"seconds", "seconds"},
               {"detail", "what it shows", true}});
  int ok = 0, skipped = 0, failed = 0;
  {
    Progress progress("verify: cases", static_cast<std::int64_t>(cases.size()));
    for (const conformance::Case* next : cases) {
      const Outcome outcome = run_case(*next, found);
      const std::string result = outcome.result;
      ok += result == "ok";
      skipped += result == "skipped";
      failed += result == "FAILED";
      table.add_row({text_cell(chosen.name), text_cell(next->name), text_cell(result), number_cell(outcome.seconds, 2),
                     text_cell(outcome.detail)});
      progress.advance();
    }
  }
  Json missing = Json::object();
  std::string lacking;
  for (const Backend& known : backends()) {
    if (known.why_missing == nullptr) continue;
    missing[known.name] = known.why_missing;
    lacking += fmt::format("{}{}", lacking.empty() ? "" : ", ", known.name);
  }
  if (json)
    print(Json{
        {"ok", ok}, {"skipped", skipped}, {"failed", failed}, {"cases", table.json()}, {"not_in_this_build", missing}});
  else
    print(table.text() + fmt::format("\nBackend {} ({}): {} ok, {} skipped, {} failed. Not in this build: {}.\n",
                                     chosen.name, chosen.ranks_are, ok, skipped, failed, lacking));
  if (failed != 0)
    throw CommandFailed(
        fmt::format("{} of {} conformance cases failed on backend {}", failed, cases.size(), chosen.name));
}

#else

void VerifyCommand::run() const {
  throw Error(ErrorKind::unsupported,
              "verify: this build was made without the tests (FERRY_TESTS), which hold the suite");
}

#endif

}  // namespace

void add_verify_command(CLI::App& app) {
  const auto command = std::make_shared<VerifyCommand>();
  CLI::App& verify = *app.add_subcommand("verify", "Run the conformance suite here and say what works");
  add_backend_option(verify, command->backend);
  verify.add_flag("--quick", command->quick, "Only the cases that are quick");
  verify.add_option("--case", command->only, "Only cases with this in their name");
  verify.add_flag("--list", command->list, "List the cases and run none");
  add_json_flag(verify, command->json);
  verify.callback([command] { command->run(); });
}

}  // namespace ferry::app
