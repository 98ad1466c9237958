// A rank of the tool's NVSHMEM job: a world of the library, and the job's own connections for what no exchange carries.
#pragma once

#include <memory>

#include "cuda/nvshmem/nvshmem_world.h"
#include "ferry/byte_links.h"
#include "ferry/process_world.h"

namespace ferry::app {

class NvshmemRankWorld final : public ProcessWorld {
 public:
  NvshmemRankWorld(std::unique_ptr<cuda::NvshmemWorld> world, std::shared_ptr<cuda::NvshmemJob> job,
                   std::shared_ptr<ByteLinks> links)
      : job_(std::move(job)), world_(std::move(world)), links_(std::move(links)) {}

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
  bool reaches_directly(int rank) const override { return world_->is_of_node(rank); }
  void send(std::span<const std::byte> data, int to, std::chrono::milliseconds deadline) override {
    links_->send(data, to, deadline);
  }
  void receive(std::span<std::byte> data, int from, std::chrono::milliseconds deadline) override {
    links_->receive(data, from, deadline);
  }

  const std::shared_ptr<cuda::NvshmemJob>& job() const { return job_; }

 private:
  std::shared_ptr<cuda::NvshmemJob> job_;
  std::unique_ptr<cuda::NvshmemWorld> world_;
  std::shared_ptr<ByteLinks> links_;
};

}  // namespace ferry::app
