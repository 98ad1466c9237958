// Processes with one NVSHMEM among them and as many worlds as there are cases, each over a bootstrap of its own.
#pragma once

#include <memory>

#include "cuda/world/process_place.h"
#include "gpu/few_gpus.h"
#include "net/bootstrap_address.h"
#include "nvshmem/nvshmem_world.h"
#include "support/processes/process_suite.h"

namespace ferry::test {

class NvshmemProcesses {
 public:
  // Collective. `options`, which may change from world to world, must live as long.
  explicit NvshmemProcesses(const NvshmemOptions& options)
      : options_(options),
        place_(place_of_process()),
        device_(gpu_of(place_.rank)),
        processes_(place_, [this](const ProcessPlace& of_the_case) { return make_world(of_the_case); }),
        job_(cuda::NvshmemJob::start(processes_.control(), device_, options.heap_bytes, options.deadline)) {}

  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  int device() const { return device_; }
  ProcessSuite& processes() { return processes_; }
  // The last call. Collective.
  void end() { job_->end(processes_.control(), options_.deadline); }

 private:
  std::unique_ptr<World> make_world(const ProcessPlace& place) {
    auto bootstrap = std::make_unique<net::Bootstrap>(net::job_of(place, kMaxRanks), options_.deadline);
    return std::make_unique<cuda::NvshmemWorld>(job_, std::move(bootstrap), options_, device_, false);
  }

  const NvshmemOptions& options_;
  ProcessPlace place_;
  int device_;
  ProcessSuite processes_;
  std::shared_ptr<cuda::NvshmemJob> job_;
};

}  // namespace ferry::test
