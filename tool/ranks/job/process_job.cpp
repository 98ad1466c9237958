#include "tool/ranks/job/process_job.h"

#include <fmt/core.h>

#include "ferry/error.h"
#include "ferry/worlds/process_world.h"

namespace ferry::app {
namespace {

class ProcessJob final : public Job {
 public:
  ProcessJob() : place_(place_of_process()), world_(make_world(place_.size, 1)) {}
  ProcessWorld& world() override { return *world_; }

  std::unique_ptr<ProcessWorld> make_world(int ranks, int nodes) override {
    if (nodes != 1)
      throw Error(ErrorKind::invalid_argument, fmt::format("--nodes {}: processes of this host are 1 node", nodes));
    ProcessOptions options;
    options.deadline = job_deadline();
    options.place = place_;
    options.place.size = ranks;
    // Late processes of one world never meet the next. Names have at most 63 characters.
    options.place.job = fmt::format("{}/{}", place_.job.substr(0, 48), ++worlds_);
    return place_.rank < ranks ? make_process_world(options) : nullptr;
  }

  void finish(std::chrono::milliseconds deadline) override { world_->barrier({}, deadline); }

 private:
  ProcessPlace place_;
  int worlds_ = 0;
  std::unique_ptr<ProcessWorld> world_;
};

}  // namespace

std::unique_ptr<Job> start_process_job(bool) { return std::make_unique<ProcessJob>(); }

}  // namespace ferry::app
