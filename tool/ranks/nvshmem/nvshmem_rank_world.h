// A rank of the tool's NVSHMEM job.
#pragma once

#include <memory>

#include "nvshmem/nvshmem_world.h"
#include "tool/ranks/linked_world.h"

namespace ferry::app {

class NvshmemRankWorld final : public LinkedWorld<cuda::NvshmemWorld> {
 public:
  NvshmemRankWorld(std::unique_ptr<cuda::NvshmemWorld> world, std::shared_ptr<cuda::NvshmemJob> job,
                   std::shared_ptr<ByteLinks> links)
      : LinkedWorld(std::move(world), std::move(links)), job_(std::move(job)) {}

  bool reaches_directly(int rank) const override { return world().is_of_node(rank); }
  const std::shared_ptr<cuda::NvshmemJob>& job() const { return job_; }

 private:
  std::shared_ptr<cuda::NvshmemJob> job_;
};

}  // namespace ferry::app
