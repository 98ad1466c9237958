// Copies of this program as the ranks of a job: started with what torchrun would put into their environment, awaited,
// and ended where they do not end by themselves.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace ferry::test {

struct WorkerResult {
  int exit_code = -1;  // -1: ended by a signal
  int signal = 0;
  bool ran_on = false;  // until the limit
  std::string output;   // stdout and stderr
};

// What a worker does, by name; its exit code. Each program of workers has its own.
int work(const std::string& what);

// Runs `ranks` copies of this program with the arguments `--worker <what>`. Those that still run after `limit`, or are
// stopped when all others have ended, are killed.
std::vector<WorkerResult> run_workers(int ranks, const std::string& what,
                                      std::chrono::seconds limit = std::chrono::seconds(120));

// The same of another program.
std::vector<WorkerResult> run_processes(int ranks, const std::string& program,
                                        const std::vector<std::string>& arguments,
                                        std::chrono::seconds limit = std::chrono::seconds(120));

std::string text_of(const std::vector<WorkerResult>& results);

// Expectations of the test: the process of rank `killed` was killed, all others found what they expect.
void expect_well(const std::vector<WorkerResult>& results, int killed = -1);

// main() of a program of workers: a worker, or GoogleTest's.
int run_main(int count, char** arguments);

}  // namespace ferry::test
