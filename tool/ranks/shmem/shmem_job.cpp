// The tool's processes as ranks of an OpenSHMEM job.
#include "tool/ranks/shmem/shmem_job.h"

#include "ferry/worlds/shmem_world.h"
#include "net/host/launch_environment.h"

namespace ferry::app {
namespace {

class JobOfShmem final : public Job {
 public:
  JobOfShmem() : world_(make_world(0, 1)) {}
  ProcessWorld& world() override { return *world_; }
  std::unique_ptr<ProcessWorld> make_world(int ranks, int nodes) override {
    return job_.make_world(ranks, nodes, job_deadline());
  }
  void finish(std::chrono::milliseconds deadline) override {
    world_.reset();
    job_.finish(deadline);
  }

 private:
  ShmemJob job_{{.start_deadline = job_deadline(ShmemOptions{}.start_deadline)}};
  std::unique_ptr<ProcessWorld> world_;
};

std::string why_missing() {
  if (net::launched_process()) return "";
  return "its ranks are processes, and no launcher started this one: use `oshrun -np RANKS ferry ...`";
}

int num_ranks() {
  const auto launched = net::launched_process();
  return launched ? launched->size : 0;
}

std::unique_ptr<Job> start(bool) { return std::make_unique<JobOfShmem>(); }

}  // namespace

JobStarter make_shmem_starter() { return {why_missing, num_ranks, start}; }

}  // namespace ferry::app
