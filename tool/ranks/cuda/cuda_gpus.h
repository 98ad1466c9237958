// The GPUs that CUDA finds.
#pragma once

#include "tool/ranks/gpus.h"

namespace ferry::app {

class CudaGpus final : public Gpus {
 public:
  std::string why_none() const override;
  int count() const override;
  std::vector<GpuInfo> infos() const override;
  std::string versions() const override;
  int of_this_process() const override;
  std::vector<std::unique_ptr<World>> make_worlds(const std::vector<int>& devices, bool staged) const override;
  std::unique_ptr<Job> start_job(bool staged) const override;
  std::unique_ptr<RankCalls> make_calls(int device, const Shape& shape, const RowLayout& layout,
                                        RowOrder order) const override;
};

}  // namespace ferry::app
