// NvshmemWorld: this process's rank of a world over NVSHMEM.
#pragma once

#include <memory>

#include "cuda/world/gpu_world.h"
#include "ferry/cuda/nvshmem_world.h"
#include "nvshmem/nvshmem_job.h"

namespace ferry::cuda {

class NvshmemWorld final : public GpuWorld {
 public:
  // Collective over the bootstrap, whose rank r is PE r of the job. The job may have more PEs. `ends_job`: NVSHMEM ends
  // with this world.
  NvshmemWorld(std::shared_ptr<NvshmemJob> job, std::unique_ptr<net::Bootstrap> bootstrap,
               const NvshmemOptions& options, int device, bool ends_job);
  ~NvshmemWorld() override;

  const char* backend() const override { return "nvshmem"; }
  int rank() const override { return bootstrap_->rank(); }
  int size() const override { return bootstrap_->size(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const RankMask& mask,
                  std::chrono::milliseconds deadline) override {
    bootstrap_->all_gather(mine, all, mask, deadline);
  }
  bool has_remote_ranks() const override;
  // This rank stores to the memory of `peer`; otherwise it puts.
  bool is_of_node(int peer) const;

 private:
  static constexpr std::chrono::milliseconds kPatienceAtTheEnd{5000};
  void require_nodes() const;
  void require_supported(const ExchangeOptions& options) const override;
  void require_kernels(const Launchers& kernels) const override;
  Launchers launchers() const override;
  DeviceHeaps make_heaps(std::size_t bytes, const ExchangeOptions& options) override;

  std::shared_ptr<NvshmemJob> job_;
  std::unique_ptr<net::Bootstrap> bootstrap_;
  int nodes_;
  int ranks_per_node_;
  bool ends_job_;
};

}  // namespace ferry::cuda
