// NvshmemWorld: this process's rank of a world over NVSHMEM.
#pragma once

#include <memory>

#include "cuda/world/gpu_world.h"
#include "ferry/cuda/nvshmem_world.h"
#include "net/bootstrap_world.h"
#include "nvshmem/nvshmem_job.h"

namespace ferry::cuda {

class NvshmemWorld final : public GpuWorld<net::BootstrapWorld> {
 public:
  // Collective over the bootstrap, whose rank r is PE r of the job. The job may have more PEs. `ends_job`: NVSHMEM ends
  // with this world.
  NvshmemWorld(std::shared_ptr<NvshmemJob> job, std::unique_ptr<net::Bootstrap> bootstrap,
               const NvshmemOptions& options, int device, bool ends_job);
  ~NvshmemWorld() override;

  WorldKind kind() const override { return WorldKind::nvshmem; }
  const char* backend() const override { return "nvshmem"; }
  bool has_remote_ranks() const override;
  bool is_direct(int peer) const override;
  const std::shared_ptr<NvshmemJob>& job() const { return job_; }

 private:
  static constexpr std::chrono::milliseconds kPatienceAtTheEnd{5000};
  void require_nodes() const;
  Launchers launchers() const override;
  const char* fabric() const override;
  GpuHeaps make_heaps(std::size_t bytes, const ExchangeOptions& options) override;

  std::shared_ptr<NvshmemJob> job_;
  int nodes_;
  int ranks_per_node_;
  bool ends_job_;
};

}  // namespace ferry::cuda
