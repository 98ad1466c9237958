// `ferry`: parses the command line, runs one subcommand, and turns what it throws into one line and an exit code.
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "tool/command_line/command_line.h"
#include "tool/parts/parts.h"
#include "tool/ranks/job/job.h"

namespace {

constexpr int kFailure = 1;
constexpr int kBadUse = 2;

// What is bad use for one process of a job is so for all: the first says it, and the others give it time to. Handlers
// call it, so it throws nothing.
bool is_said_by_another(int code) noexcept {
  if (code != kBadUse || ferry::app::speaks_for_all()) return false;
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
  ferry::app::run_command_line(argc, argv);
  ferry::app::finish_job();
  if (std::fflush(stdout) != 0)
    return report(std::string("cannot write to standard output: ") + std::strerror(errno), kFailure);
  if (std::ferror(stdout) != 0) return report("cannot write to standard output: an earlier write failed", kFailure);
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
  std::signal(SIGXFSZ,
              SIG_IGN);  // a file beyond `ulimit -f` fails as a full disk does: with the reason, and exit code 1
  try {
    ferry::app::register_parts();
    return end(run(argc, argv));
  } catch (const ferry::app::FirstProcessFailed& error) {
    return end(error.exit_code());
  } catch (const std::bad_alloc&) {
    return end(report("out of memory", kFailure));
  } catch (const std::exception& error) {
    return end(report(ferry::app::message_of(error), ferry::app::exit_code_of(error)));
  }
}
