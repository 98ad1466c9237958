// A job of processes with a GPU each, and their worlds.
#include <fmt/core.h>

#include "ferry/cuda/cuda_world.h"
#include "tool/ranks/cuda/cuda_gpus.h"
#include "tool/ranks/ranks.h"

namespace ferry::app {
namespace {

class GpuJob final : public Job {
 public:
  explicit GpuJob(bool staged) : staged_(staged), place_(place_of_process()), world_(make_world(place_.size, 1)) {}
  ProcessWorld& world() override { return *world_; }

  std::unique_ptr<ProcessWorld> make_world(int ranks, int nodes) override {
    if (nodes != 1)
      throw Error(ErrorKind::invalid_argument, fmt::format("--nodes {}: GPUs of this host are 1 node", nodes));
    CudaProcessOptions options;
    options.deadline = job_deadline();
    options.place = place_;
    options.place.size = ranks;
    options.place.job = job_name(std::to_string(++worlds_));  // late processes of one world never meet the next
    options.device = gpus().of_this_process();
    options.staged = staged_;
    options.share_gpus = gpus_are_shared();
    if (place_.rank >= ranks) return nullptr;
    return make_cuda_process_world(options);
  }

  void finish(std::chrono::milliseconds deadline) override { world_->barrier({}, deadline); }

 private:
  // Names have at most 63 characters.
  std::string job_name(const std::string& part) const { return place_.job.substr(0, 48) + "/" + part; }

  bool staged_;
  ProcessPlace place_;
  int worlds_ = 0;
  std::unique_ptr<ProcessWorld> world_;
};

}  // namespace

int CudaGpus::of_this_process() const {
  if (count() == 1) return 0;
  const ProcessPlace place = place_of_process();
  const int local = place.local_rank >= 0 ? place.local_rank : place.rank;
  return gpus_are_shared() ? local % count() : local;
}

std::unique_ptr<Job> CudaGpus::start_job(bool staged) const { return std::make_unique<GpuJob>(staged); }

}  // namespace ferry::app
