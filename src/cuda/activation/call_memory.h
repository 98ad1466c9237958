// CallMemory: all tensors of a call on rows lie on one GPU, which its stream belongs to.
#pragma once

#include <cuda_runtime_api.h>

#include "ferry/tensor.h"

namespace ferry::cuda {

class CallMemory {
 public:
  // `first` says on which GPU; `call` and `first_name` are for the text of errors. Throws Error(invalid_argument) where
  // it is host memory.
  CallMemory(const char* call, const char* first_name, const ConstTensor& first);

  int device() const { return device_; }
  // These throw Error(invalid_argument). A tensor that is not given passes.
  void require(const char* name, const ConstTensor& tensor) const;
  void require_stream(cudaStream_t stream) const;

 private:
  int device_of(const char* name, const ConstTensor& tensor, int any) const;

  const char* call_;
  const char* first_name_;
  int device_ = 0;
};

}  // namespace ferry::cuda
