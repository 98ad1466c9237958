// A job of processes with a GPU each: their worlds, and the bytes that the first one sends for all.
#include <fmt/core.h>

#include "ferry/byte_links.h"
#include "ferry/cuda/cuda_world.h"
#include "ferry/gpu.h"
#include "shared/exchange_backend.h"

namespace ferry::app {
namespace {

// A world of the library, and the job's own connections for what no exchange carries.
class GpuProcessWorld final : public ProcessWorld {
 public:
  GpuProcessWorld(std::unique_ptr<World> world, std::shared_ptr<ByteLinks> links)
      : world_(std::move(world)), links_(std::move(links)) {}

  const char* backend() const override { return world_->backend(); }
  int rank() const override { return world_->rank(); }
  int size() const override { return world_->size(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const RankMask& mask,
                  std::chrono::milliseconds deadline) override {
    world_->all_gather(mine, all, mask, deadline);
  }
  std::unique_ptr<ExchangeBackend> make_exchange(const Shape& shape, const ExchangeOptions& options) override {
    return world_->make_exchange(shape, options);
  }
  bool reaches_directly(int) const override { return true; }
  void send(std::span<const std::byte> data, int to, std::chrono::milliseconds deadline) override {
    links_->send(data, to, deadline);
  }
  void receive(std::span<std::byte> data, int from, std::chrono::milliseconds deadline) override {
    links_->receive(data, from, deadline);
  }

 private:
  std::unique_ptr<World> world_;
  std::shared_ptr<ByteLinks> links_;
};

class GpuJob final : public Job {
 public:
  explicit GpuJob(bool staged) : staged_(staged), place_(place_of_process()) {
    links_ = std::make_shared<ByteLinks>(
        net::Job{net::parse_address(place_.address), place_.rank, place_.size, job_name("bytes")}, kDefaultDeadline);
    world_ = make_world(place_.size, 1);
  }
  ProcessWorld& world() override { return *world_; }

  std::unique_ptr<ProcessWorld> make_world(int ranks, int nodes) override {
    if (nodes != 1)
      throw Error(ErrorKind::invalid_argument, fmt::format("--nodes {}: GPUs of this host are 1 node", nodes));
    CudaProcessOptions options;
    options.place = place_;
    options.place.size = ranks;
    options.place.job = job_name(std::to_string(++worlds_));  // late processes of one world never meet the next
    options.device = gpu_of_this_process();
    options.staged = staged_;
    if (place_.rank >= ranks) return nullptr;
    return std::make_unique<GpuProcessWorld>(make_cuda_process_world(options), links_);
  }

  void finish(std::chrono::milliseconds deadline) override { world_->barrier({}, deadline); }

 private:
  // Names have at most 63 characters.
  std::string job_name(const std::string& part) const { return place_.job.substr(0, 48) + "/" + part; }

  bool staged_;
  ProcessPlace place_;
  int worlds_ = 0;
  std::shared_ptr<ByteLinks> links_;
  std::unique_ptr<ProcessWorld> world_;
};

}  // namespace

int gpu_of_this_process() {
  if (num_gpus() == 1) return 0;
  const ProcessPlace place = place_of_process();
  return place.local_rank >= 0 ? place.local_rank : place.rank;
}

std::unique_ptr<Job> start_gpu_job(bool staged) { return std::make_unique<GpuJob>(staged); }

}  // namespace ferry::app
