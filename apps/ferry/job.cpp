#include "ferry/job.h"

#include <span>
#include <vector>

#include "ferry/error.h"
#include "net/launch_environment.h"

namespace ferry::app {
namespace {

// How long the others wait for what the first process does alone, such as reading files.
constexpr std::chrono::hours kFirstProcessWork{1};

std::unique_ptr<Job>& joined() {
  static std::unique_ptr<Job> job;
  return job;
}

// Tells all processes how the first one's work ended: 0, or its exit code.
int share_outcome(Job& job, int outcome) {
  std::vector<int> all(static_cast<std::size_t>(job.world().size()));
  job.world().all_gather(std::as_bytes(std::span(&outcome, 1)), std::as_writable_bytes(std::span(all)), {},
                         kFirstProcessWork);
  return all.front();
}

}  // namespace

Job* joined_job() { return joined().get(); }

Job& join(std::unique_ptr<Job> job) {
  joined() = std::move(job);
  return *joined();
}

bool is_first_process() { return joined() == nullptr || joined()->world().rank() == 0; }

int num_processes() {
  const auto launched = net::launched_process();
  return launched ? launched->size : 1;
}

int process_number() {
  const auto launched = net::launched_process();
  return launched ? launched->rank : 0;
}

void finish_job() {
  if (joined()) joined()->finish();
}

int exit_code_of(const std::exception& error) {
  if (const auto* first = dynamic_cast<const FirstProcessFailed*>(&error)) return first->exit_code();
  const auto* known = dynamic_cast<const Error*>(&error);
  return known != nullptr && known->kind() == ErrorKind::invalid_argument ? 2 : 1;
}

void in_first_process(const std::function<void()>& body) {
  Job* job = joined_job();
  if (job == nullptr) return body();
  if (!is_first_process()) {
    const int code = share_outcome(*job, 0);
    if (code != 0) throw FirstProcessFailed(code);
    return;
  }
  try {
    body();
  } catch (const std::exception& error) {
    share_outcome(*job, exit_code_of(error));
    throw;
  }
  share_outcome(*job, 0);
}

std::string text_of_first_process(std::string text) {
  Job* job = joined_job();
  if (job == nullptr) return text;
  ProcessWorld& world = job->world();
  const std::uint64_t mine = text.size();
  std::vector<std::uint64_t> all(static_cast<std::size_t>(world.size()));
  world.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), {}, kDefaultDeadline);
  text.resize(all.front());
  const auto bytes = std::as_writable_bytes(std::span(text));
  if (!is_first_process()) world.receive(bytes, 0);
  for (int rank = 1; is_first_process() && rank < world.size(); ++rank) world.send(bytes, rank);
  return text;
}

}  // namespace ferry::app
