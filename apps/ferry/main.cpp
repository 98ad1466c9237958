// `ferry`: parses the command line, runs one subcommand, and turns what it throws into one line and an exit code.
#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "ferry/bench_command.h"
#include "ferry/commands.h"
#include "ferry/ferry.h"
#include "ferry/job.h"

namespace {

constexpr int kFailure = 1;
constexpr int kBadUse = 2;

// What is bad use for one process of a job is so for all: the first says it, and the others give it time to.
bool is_said_by_another(int code) {
  if (code != kBadUse || ferry::app::process_number() == 0) return false;
  constexpr int kMilliseconds = 1000;
  poll(nullptr, 0, kMilliseconds);
  return true;
}

int report(std::string message, int code) {
  if (is_said_by_another(code)) return code;
  std::replace(message.begin(), message.end(), '\n', ' ');
  std::fprintf(stderr, "ferry: %s\n", message.c_str());
  return code;
}

int run(int argc, char** argv) {
  CLI::App app("Carries Mixture-of-Experts tokens to the ranks that own their experts, and back.", "ferry");
  app.set_version_flag("--version", std::string("ferry ") + ferry::kVersion);
  app.require_subcommand(1);
  app.footer(
      "Exit code: 0 done; 2 bad use: options, or arrays that do not fit; 1 failed: files, memory, checks.\n"
      "`ferry COMMAND --help` explains a command.");
  ferry::app::add_demo_command(app);
  ferry::app::add_layer_command(app);
  ferry::app::add_codec_command(app);
  ferry::app::add_bench_command(app);
  ferry::app::add_verify_command(app);
  ferry::app::add_info_command(app);
  const auto is_named = [&](const CLI::App* command) { return command->check_name(argv[1]); };
  if (argc > 1 && argv[1][0] != '-' && app.get_subcommands(is_named).empty())
    return report(std::string(argv[1]) + " is not a command (see --help)", kBadUse);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked_for_help) {
    return app.exit(asked_for_help);
  } catch (const CLI::ParseError& error) {
    return report(std::string(error.what()) + " (see --help)", kBadUse);
  }
  ferry::app::finish_job();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) return report("cannot write to standard output", kFailure);
  return 0;
}

}  // namespace

// A process of a job that has not finished it ends at once: what OpenSHMEM does at exit would wait for the others.
int end(int code) {
  if (code == 0 || ferry::app::joined_job() == nullptr) return code;
  std::fflush(nullptr);
  std::_Exit(code);
}

int main(int argc, char** argv) {
  try {
    return end(run(argc, argv));
  } catch (const ferry::app::FirstProcessFailed& error) {
    return end(error.exit_code());
  } catch (const std::bad_alloc&) {
    return end(report("out of memory", kFailure));
  } catch (const std::exception& error) {
    return end(report(error.what(), ferry::app::exit_code_of(error)));
  }
}
