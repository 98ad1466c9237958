// DeviceChecks: arguments that a GPU rank refuses before it enqueues anything: memory and streams of another device,
// and addresses that bulk copies cannot take. exchange/checks/validate.h has the checks of all backends.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/device/rank_device.h"
#include "exchange/checks/validate.h"

namespace ferry::cuda {

class DeviceChecks {
 public:
  // `device` must be current. `has_hooks`: the caller's functions are compiled into the kernels.
  DeviceChecks(const RankDevice& device, int rank, bool has_hooks);

  void check_call(const CallOptions& call) const;
  void check_host_call(const CallOptions& call) const;  // of a call that enqueues nothing
  void check_dispatch_input(const DispatchInput& in, const DispatchArgs& args) const;
  void check_rows(const CheckContext& context, const DispatchOutput& out) const;
  void check_combine_input(const CombineInput& in, const CombineArgs& args) const;
  void check_sums(const CombineOutput& out, const CombineOut& sums, int num_tokens) const;

 private:
  void require_own_stream(cudaStream_t stream) const;
  void require_of_this_device(cudaStream_t stream) const;
  // Takes the tensor's word for the device that it lies on; where it says none, asks the driver.
  void require_on_device(const char* name, const ConstTensor& tensor) const;
  void require_on_device(const char* name, const void* pointer) const;
  void require_device(const char* name, int device) const;
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
