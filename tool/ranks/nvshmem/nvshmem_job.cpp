// The tool's processes as ranks of an NVSHMEM job, a GPU each.
#include "tool/ranks/nvshmem/nvshmem_job.h"

#include <algorithm>
#include <cstdlib>

#include "base/byte_size.h"
#include "cuda/device/device_memory.h"
#include "cuda/world/process_place.h"
#include "ferry/detail/cuda/launch/launch.h"
#include "ferry/detail/cuda/state/cuda_check.h"
#include "net/bootstrap_address.h"
#include "nvshmem/nvshmem_world.h"
#include "tool/ranks/gpus.h"
#include "tool/ranks/ranks.h"

namespace ferry::app {
namespace {

constexpr std::uint64_t kMostHeap = std::uint64_t{8} << 30;
constexpr std::uint64_t kLeastHeap = std::uint64_t{16} << 20;

// 0 where it is neither there nor a size.
std::uint64_t symmetric_size() {
  const char* text = std::getenv("NVSHMEM_SYMMETRIC_SIZE");
  return text == nullptr ? 0 : bytes_of_size(text);
}

std::uint64_t free_memory(int device) {
  const cuda::DeviceScope scope(device);
  std::size_t left = 0, total = 0;
  cuda::cuda_check(cudaMemGetInfo(&left, &total), "cudaMemGetInfo");
  return left;
}

// What NVSHMEM_SYMMETRIC_SIZE leaves, or a quarter of what the GPU has free, divided by the ranks that share it. Every
// rank has the same: the least of all.
std::uint64_t agree_on_heap(net::Bootstrap& bootstrap, int device) {
  const auto gather = [&](auto mine, auto all) { bootstrap.all_gather(mine, all, {}, job_deadline()); };
  const int ranks_sharing =
      cuda::ranks_of_device(bootstrap.rank(), bootstrap.size(), device, gpus_are_shared(), gather);
  std::uint64_t mine = symmetric_size();
  mine = mine != 0 ? std::max(mine, kOwnBytesOfNvshmem + kLeastHeap) - kOwnBytesOfNvshmem
                   : std::min(free_memory(device) / 4, kMostHeap) / static_cast<unsigned>(ranks_sharing);
  std::vector<std::uint64_t> all(static_cast<std::size_t>(bootstrap.size()));
  bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), {}, job_deadline());
  return *std::min_element(all.begin(), all.end()) / 4096 * 4096;
}

class JobOfNvshmem final : public Job {
 public:
  explicit JobOfNvshmem(bool staged)
      : staged_(staged),
        place_(place_of_process()),
        device_(cuda::choose_device(gpus_are_shared() ? gpus().of_this_process() : -1, place_)),
        bootstrap_(net::job_of(named("job"), kMaxRanks), job_deadline()),
        job_(start()),
        world_(make_world(place_.size, 1)) {}

  ProcessWorld& world() override { return *world_; }

  std::unique_ptr<ProcessWorld> make_world(int ranks, int nodes) override {
    ProcessPlace place = named(std::to_string(++worlds_));  // late processes of one world never meet the next
    place.size = ranks;
    if (place.rank >= ranks) return nullptr;
    NvshmemOptions options;
    options.nodes = nodes;
    options.staged = staged_;
    options.share_gpus = gpus_are_shared();
    options.deadline = job_deadline();
    auto bootstrap = std::make_unique<net::Bootstrap>(net::job_of(place, kMaxRanks), options.deadline);
    return std::make_unique<cuda::NvshmemWorld>(job_, std::move(bootstrap), options, device_, false);
  }

  void finish(std::chrono::milliseconds deadline) override {
    world_.reset();
    job_->end(bootstrap_, deadline);
  }

 private:
  // Names have at most 63 characters.
  ProcessPlace named(const std::string& part) const {
    ProcessPlace place = place_;
    place.job = place_.job.substr(0, 48) + "/" + part;
    return place;
  }
  std::shared_ptr<cuda::NvshmemJob> start() {
    cuda::require_bulk_copies(device_);
    return cuda::NvshmemJob::start(bootstrap_, device_, agree_on_heap(bootstrap_, device_), job_deadline());
  }

  bool staged_;
  ProcessPlace place_;
  int device_;
  net::Bootstrap bootstrap_;
  std::shared_ptr<cuda::NvshmemJob> job_;
  int worlds_ = 0;
  std::unique_ptr<ProcessWorld> world_;
};

int num_ranks() { return has_launcher() ? num_processes() : 0; }

std::string why_missing() {
  if (gpus().count() == 0) return gpus().why_none();
  if (num_ranks() != 0) return "";
  return "its ranks are processes, and no launcher started this one: use `mpirun -np RANKS ferry ...`, or start each "
         "with RANK, WORLD_SIZE and FERRY_ADDRESS=host:port of rank 0";
}

std::unique_ptr<Job> start(bool staged) { return std::make_unique<JobOfNvshmem>(staged); }

}  // namespace

JobStarter make_nvshmem_starter() { return {why_missing, num_ranks, start}; }

}  // namespace ferry::app
