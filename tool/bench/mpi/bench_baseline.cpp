// Starts the MPI processes of the baseline and reads what rank 0 prints.
#include "tool/bench/mpi/bench_baseline.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tool/bench/base/bench_machine.h"
#include "tool/text/json.h"

namespace ferry::app {
namespace {

constexpr double kStartSeconds = 120;    // what a loaded machine may need to start and stop the processes
constexpr double kMostSeconds = 3600;    // for iterations: a baseline that hangs is found
constexpr double kIterationSeconds = 1;  // what an iteration may take where ranks wait for each other's cores

// For Open MPI, and only where the user has not chosen: root may run, ranks may outnumber cores, and bytes go through
// shared memory.
constexpr std::pair<const char*, const char*> kSettings[] = {
    {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
    {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
    {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
    {"OMPI_MCA_pml", "ob1"},
    {"OMPI_MCA_btl", "self,vader"},
    {"OMPI_MCA_btl_base_warn_component_unused", "0"},
};

std::vector<std::string> worker_command(const BenchCase& bench) {
  std::vector<std::string> command = {"mpirun", "-np", std::to_string(bench.shape.ranks)};
  if (bench.shape.ranks > this_machine().cores) command.insert(command.end(), {"--bind-to", "none"});
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  command.insert(command.end(), {self, "bench-mpi-worker"});
  const auto add = [&command](const char* name, const std::string& value) {
    command.insert(command.end(), {name, value});
  };
  add("--operation", to_string(bench.operation));
  add("--ranks", std::to_string(bench.shape.ranks));
  add("--experts", std::to_string(bench.shape.experts));
  add("--top-k", std::to_string(bench.shape.top_k));
  add("--hidden", std::to_string(bench.shape.hidden));
  add("--tokens", std::to_string(bench.shape.max_tokens));
  add("--routing", to_string(bench.routing));
  add("--zipf-exponent", fmt::format("{}", bench.zipf_exponent));
  add("--seconds", fmt::format("{}", bench.effort.seconds));
  if (bench.effort.iterations > 0) add("--iterations", std::to_string(bench.effort.iterations));
  add("--cache", std::to_string(std::max<std::size_t>(this_machine().last_level_cache >> 20, 1)));
  return command;
}

// A child process whose standard output and error are read here. Killed when it is still there at the end.
class Child {
 public:
  explicit Child(std::vector<std::string> command) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw Error(ErrorKind::system, "cannot make a pipe for the MPI baseline");
    output_ = ends[0];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    std::vector<char*> arguments;
    for (std::string& argument : command) arguments.push_back(argument.data());
    arguments.push_back(nullptr);
    const int failed = posix_spawnp(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (failed != 0) {
      close(output_);
      throw Error(ErrorKind::unsupported, fmt::format("cannot start {}: {}", command[0], std::strerror(failed)));
    }
  }
  ~Child() {
    close(output_);
    if (pid_ <= 0) return;
    kill(pid_, SIGTERM);  // mpirun ends its processes on this
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // All that it prints. Throws when it is not done in time.
  std::string read_all(double seconds) const {
    const auto start = std::chrono::steady_clock::now();
    std::string text;
    std::array<char, 4096> part;
    while (seconds_since(start) < seconds) {
      pollfd waiting{output_, POLLIN, 0};
      if (poll(&waiting, 1, 200) <= 0) continue;
      const ssize_t count = read(output_, part.data(), part.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return text;
      text.append(part.data(), static_cast<std::size_t>(count));
    }
    throw Error(ErrorKind::system,
                fmt::format("the MPI baseline was not done after {:.0f} s: choose fewer --tokens, --ranks or "
                            "--iterations, or leave --baseline out",
                            seconds));
  }

  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = 0;
  int output_ = -1;
};

bool on_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  const std::string folders = path != nullptr ? path : "";
  for (std::size_t at = 0; at <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', at), folders.size());
    if (access((folders.substr(at, end - at) + "/" + program).c_str(), X_OK) == 0) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

void require_baseline() {
#if !defined(FERRY_HAVE_MPI)
  throw Error(ErrorKind::unsupported, "--baseline needs MPI, " FERRY_WHY_NO_MPI ", or leave --baseline out");
#endif
  if (!on_path("mpirun"))
    throw Error(ErrorKind::unsupported,
                "--baseline needs mpirun, which is not on the PATH: install openmpi-bin, or leave --baseline out");
}

double baseline_deadline(const BenchEffort& effort) {
  const double of_iterations = kIterationSeconds * std::max(effort.iterations, kFewestIterations);
  return kStartSeconds + 10 * effort.seconds + std::min(of_iterations, kMostSeconds);
}

BaselineMeasurement measure_baseline(const BenchCase& bench) {
  for (const auto& [name, value] : kSettings) setenv(name, value, 0);
  Child child(worker_command(bench));
  const std::string text = child.read_all(baseline_deadline(bench.effort));
  const int code = child.wait();
  const std::size_t start = text.find("{\"library\"");
  if (code != 0 || start == std::string::npos)
    throw Error(ErrorKind::system,
                fmt::format("the MPI baseline failed with exit code {}: {}", code, text.substr(0, 600)));
  const auto result = Json::parse(text.substr(start, text.find('\n', start) - start));
  return {{result["seconds"].numbers()}, result["library"].text(), bench.shape.ranks};
}

#if !defined(FERRY_HAVE_MPI)
void run_mpi_worker(const BenchCase&) { require_baseline(); }
#endif

}  // namespace ferry::app
