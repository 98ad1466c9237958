// DeviceChecks: what a GPU rank refuses before anything is enqueued, besides what exchange/validate.h checks on any
// backend: memory and streams that are not of its device, and addresses that its copies cannot take.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/exchange/device_place.h"
#include "exchange/validate.h"

namespace ferry::cuda {

class DeviceChecks {
 public:
  // `place`'s device is current. `has_hooks`: the kernels have their caller's functions inside.
  DeviceChecks(const DevicePlace& place, int rank, bool has_hooks);

  void check(const CallOptions& call) const;
  void check(const DispatchInput& in, const DispatchArgs& args) const;
  void check(const CheckContext& context, const DispatchOutput& out) const;
  void check(const CombineInput& in, const CombineArgs& args) const;
  void check(const CombineOutput& out, const CombineOut& sums, int num_tokens) const;

 private:
  void require_own_stream(cudaStream_t stream) const;
  void require_on_device(const char* name, const void* pointer) const;
  void require_aligned_rows(const char* name, const void* data, std::int64_t row_bytes) const;
  void refuse_pointer(const char* name, bool given) const;

  int device_;
  int ranks_of_device_;
  bool shares_process_;  // with the other ranks of the device
  int rank_;
  bool has_hooks_;
  DeviceEvent stream_probe_;
};

}  // namespace ferry::cuda
