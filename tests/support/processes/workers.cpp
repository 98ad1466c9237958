#include "support/processes/workers.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>

#include "net/socket/socket.h"
#include "support/free_port.h"

namespace ferry::test {
namespace {

struct Worker {
  pid_t pid = -1;
  net::Descriptor output;
};

// This program's environment with the job's variables in place of any launcher's own.
std::vector<std::string> environment_of(int rank, int ranks, int port) {
  std::vector<std::string> variables;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string text = *each;
    bool of_a_launcher = false;
    for (const char* prefix :
         {"RANK=", "WORLD_SIZE=", "LOCAL_RANK=", "MASTER_", "OMPI_", "PMI", "SLURM_", "FERRY_ADDRESS="})
      of_a_launcher = of_a_launcher || text.starts_with(prefix);
    if (!of_a_launcher) variables.push_back(text);
  }
  variables.push_back("RANK=" + std::to_string(rank));
  variables.push_back("LOCAL_RANK=" + std::to_string(rank));
  variables.push_back("WORLD_SIZE=" + std::to_string(ranks));
  variables.push_back("MASTER_ADDR=127.0.0.1");
  variables.push_back("MASTER_PORT=" + std::to_string(port - 1));
  return variables;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

Worker start(int rank, int ranks, int port, const std::string& program, std::vector<std::string> arguments) {
  std::array<int, 2> ends{-1, -1};
  if (pipe(ends.data()) != 0) throw std::runtime_error("no pipe");
  Worker worker;
  worker.output.reset(ends[0]);
  const net::Descriptor write_end(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  posix_spawn_file_actions_addclose(&actions, ends[1]);
  arguments.insert(arguments.begin(), program);
  std::vector<std::string> environment = environment_of(rank, ranks, port);
  const int status = posix_spawn(&worker.pid, program.c_str(), &actions, nullptr, pointers_to(arguments).data(),
                                 pointers_to(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (status != 0) throw std::runtime_error("cannot start a worker");
  return worker;
}

constexpr int kLookEvery = 200;  // ms, for who is stopped
bool is_stopped(pid_t pid) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

// Reads all outputs until every worker has closed its own, or is stopped, or the time is up.
void collect(std::vector<Worker>& workers, std::vector<WorkerResult>& results, const net::Deadline& deadline) {
  for (;;) {
    std::vector<pollfd> watched;
    std::vector<std::size_t> whose;
    bool all_stopped = true;
    for (std::size_t i = 0; i < workers.size(); ++i) {
      if (!workers[i].output) continue;
      watched.push_back({workers[i].output.get(), POLLIN, 0});
      whose.push_back(i);
      all_stopped = all_stopped && is_stopped(workers[i].pid);
    }
    if (all_stopped || deadline.has_passed()) return;
    poll(watched.data(), watched.size(), deadline.milliseconds_left(kLookEvery));
    for (std::size_t i = 0; i < watched.size(); ++i) {
      if (watched[i].revents == 0) continue;
      std::array<char, 4096> text{};
      const ssize_t got = read(watched[i].fd, text.data(), text.size());
      if (got > 0)
        results[whose[i]].output.append(text.data(), static_cast<std::size_t>(got));
      else if (got == 0 || errno != EINTR)
        workers[whose[i]].output.reset();
    }
  }
}

}  // namespace

std::vector<WorkerResult> run_processes(int ranks, const std::string& program,
                                        const std::vector<std::string>& arguments, std::chrono::seconds limit) {
  const int port = free_port();
  std::vector<Worker> workers;
  for (int rank = 0; rank < ranks; ++rank) workers.push_back(start(rank, ranks, port, program, arguments));
  std::vector<WorkerResult> results(workers.size());
  collect(workers, results, net::Deadline(limit));
  for (std::size_t i = 0; i < workers.size(); ++i) {
    results[i].ran_on = workers[i].output && !is_stopped(workers[i].pid);
    if (workers[i].output) kill(workers[i].pid, SIGKILL);
    int status = 0;
    waitpid(workers[i].pid, &status, 0);
    if (WIFEXITED(status)) results[i].exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) results[i].signal = WTERMSIG(status);
  }
  return results;
}

std::vector<WorkerResult> run_workers(int ranks, const std::string& what, std::chrono::seconds limit) {
  return run_processes(ranks, "/proc/self/exe", {"--worker", what}, limit);
}

std::string text_of(const std::vector<WorkerResult>& results) {
  std::string text;
  for (std::size_t rank = 0; rank < results.size(); ++rank)
    text += "---- rank " + std::to_string(rank) + ", exit " + std::to_string(results[rank].exit_code) + ", signal " +
            std::to_string(results[rank].signal) + "\n" + results[rank].output;
  return text;
}

void expect_well(const std::vector<WorkerResult>& results, int killed) {
  for (int rank = 0; rank < static_cast<int>(results.size()); ++rank) {
    const WorkerResult& result = results[static_cast<std::size_t>(rank)];
    EXPECT_EQ(result.exit_code, rank == killed ? -1 : 0) << "rank " << rank << "\n" << text_of(results);
    EXPECT_EQ(result.signal, rank == killed ? SIGKILL : 0) << "rank " << rank;
    EXPECT_FALSE(result.ran_on) << "rank " << rank;
  }
}

int run_main(int count, char** arguments) {
  if (count == 3 && std::strcmp(arguments[1], "--worker") == 0) return work(arguments[2]);
  testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}

}  // namespace ferry::test
