// A job of processes, each of which plays one rank: which one this is, what the first does for all, and how they end
// together. A process that no launcher started, or whose ranks are all its own, is first and alone.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "ferry/worlds/process_world.h"

namespace ferry::app {

class Job {
 public:
  virtual ~Job() = default;
  virtual ProcessWorld& world() = 0;  // of all processes
  // Collective over all processes; null for those that are not among the first `ranks`.
  virtual std::unique_ptr<ProcessWorld> make_world(int ranks, int nodes) = 0;
  virtual void finish(std::chrono::milliseconds deadline) = 0;  // collective, the last call
};

// The job that this process has joined; null: none. At most one is joined, once; from then on only the first process
// prints.
Job* joined_job();
// `start` joins the other processes, whose worlds are of this kind. From the second second on a line on standard error
// says that they are waited for.
Job& join(std::unique_ptr<Job> (*start)(bool staged), bool staged, WorldKind kind);

// Whether this process reads, writes and prints.
bool is_first_process();
// Whether this process is one of a job: a launcher started it, or RANK, WORLD_SIZE and an address are given.
bool has_launcher();
// Processes that were started along with this one; 1 where there was no launcher.
int num_processes();
// Its number among them; 0 where there was no launcher.
int process_number();
// The last three throw Error(invalid_argument) where rank, size and address in the environment do not fit together.
// Help and version, and what reports errors, need an answer there, too: no other process, and this one speaks.
bool has_other_processes() noexcept;
// Whether this process says what all processes of the job find alike. Of those of a launcher, which are many, the first
// does; one that a user started may be alone.
bool speaks_for_all() noexcept;

// Ends the job that was joined, on success. A process that fails after join() must end by std::_Exit. It waits for the
// others as long as job_deadline() says.
void finish_job();
// How long processes wait for each other where a job begins and ends: `usual` unless this, called before join(), sets
// another. `option` sets it on the command line, which messages of missing ranks then name; empty: none does.
void set_job_deadline(std::chrono::milliseconds deadline, const std::string& option);
std::chrono::milliseconds job_deadline(std::chrono::milliseconds usual = kDefaultDeadline);

// The first process failed, and says why.
class FirstProcessFailed : public std::runtime_error {
 public:
  explicit FirstProcessFailed(int exit_code) : std::runtime_error("the first process failed"), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// 2 for bad use, 1 for all else.
int exit_code_of(const std::exception& error);
// What a user of the commands reads of it: of a missing rank what to look at, and none of the library's calls.
std::string message_of(const std::exception& error);

// Runs `body` in the first process only. The others wait for it, as long as it takes, and throw FirstProcessFailed
// where it threw. Throws PeerMissing, in the first process after `body`, where a process is not there for `deadline`.
// `body` makes no call that is collective.
void in_first_process(std::chrono::milliseconds deadline, const std::function<void()>& body);

// Collective: the text that the first process has, in every process.
std::string text_of_first_process(std::string text);

}  // namespace ferry::app
